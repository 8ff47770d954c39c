"""The block pool: vLLM's cache, in place of the tree core."""

from worker.blocks.cache import BlockCache
from worker.blocks.config import BlockConfig
from worker.blocks.release import VllmRelease

__all__ = ["BlockCache", "BlockConfig", "VllmRelease"]
