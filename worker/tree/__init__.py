"""The embedded tree core of the simulated worker."""

from worker.tree.config import EvictionPolicy, HashFormat, HostMode, TreeConfig, WritePolicy
from worker.tree.core import TreeCore
from worker.tree.node import Node
from worker.tree.pool import TokenPool
from worker.tree.results import (
    AckedBackup,
    Backup,
    CacheKey,
    InsertHostResult,
    InsertResult,
    LoadBack,
    Match,
    PageHash,
    Residency,
    StoragePage,
    TreeCounters,
    WindowEviction,
)

__all__ = [
    "AckedBackup",
    "Backup",
    "CacheKey",
    "EvictionPolicy",
    "HashFormat",
    "HostMode",
    "InsertHostResult",
    "InsertResult",
    "LoadBack",
    "Match",
    "Node",
    "PageHash",
    "Residency",
    "StoragePage",
    "TokenPool",
    "TreeConfig",
    "TreeCore",
    "TreeCounters",
    "WindowEviction",
    "WritePolicy",
]
