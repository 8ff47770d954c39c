"""The two tiers that a node can have copies on, and their names on the wire."""

from enum import Enum


class CopyTier(Enum):
    """Storage is not among them: pages there belong to no node."""

    DEVICE = "device"
    HOST = "host"


MEDIUM = {CopyTier.DEVICE: "GPU", CopyTier.HOST: "CPU_PINNED"}
"""Medium in events."""
