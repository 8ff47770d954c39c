"""What one tree core is: sizes, policies, thresholds, and what it announces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class WritePolicy(StrEnum):
    """When a device page gets its host copy."""

    WRITE_THROUGH = "write_through"
    WRITE_THROUGH_SELECTIVE = "write_through_selective"
    WRITE_BACK = "write_back"


class EvictionPolicy(StrEnum):
    """Which leaf goes first under pressure."""

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    MRU = "mru"
    FILO = "filo"
    PRIORITY = "priority"


class HashFormat(StrEnum):
    """How page digests become the hashes on the wire."""

    DEFAULT = "default"
    DYNAMO = "dynamo"


class HostMode(StrEnum):
    """``cache``: the host pool holds copies that can be matched. ``buffer_only``: it only stages
    copies on their way to and from storage, so no host copy is ever readable or announced."""

    CACHE = "cache"
    BUFFER_ONLY = "buffer_only"


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """Sizes are tokens.

    Attributes:
        device_tokens: device pool.
        host_tokens: host pool; None = no host tier.
        write_through_threshold: hits of a node before it is copied to host; None = 1 for
            write_through, 2 for write_through_selective. write_back copies at eviction only, and never where
            host only stages.
        load_back_threshold: fewer host tokens than this are recomputed, not loaded back.
        announce_refills: False leaves out the stores of storage refills and nothing else.
        events_enabled: False = nothing is recorded.
        sliding_window: window of a sliding-window component beside full attention; None = none. Not
            together with a host tier.
        is_eagle: pages hold overlapping token pairs.
        adapters: extra_key, or its last 32 characters → adapter name.
    """

    page_size: int
    device_tokens: int
    host_tokens: int | None = None
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH
    write_through_threshold: int | None = None
    load_back_threshold: int = 10
    eviction_policy: EvictionPolicy = EvictionPolicy.LRU
    host_mode: HostMode = HostMode.CACHE
    hash_format: HashFormat = HashFormat.DEFAULT
    is_eagle: bool = False
    announce_refills: bool = True
    events_enabled: bool = True
    sliding_window: int | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise ValueError("page_size is at least 1")
        if self.device_tokens < 0 or (self.host_tokens or 0) < 0:
            raise ValueError("pools hold no negative number of tokens")
        if self.sliding_window is not None and (self.sliding_window < 1 or self.has_host_tier):
            raise ValueError("sliding_window is at least 1, and goes without a host tier")
        if self.write_through_threshold is not None and self.write_through_threshold < 1:
            raise ValueError("write_through_threshold is at least 1")

    @property
    def has_host_tier(self) -> bool:
        """Whether host copies can be matched."""
        return self.host_tokens is not None and self.host_mode is HostMode.CACHE

    @property
    def backup_threshold(self) -> int | None:
        """Hits after which a node is copied to host, or by way of it to storage; None = never at an insert."""
        if self.host_tokens is None or self.write_policy is WritePolicy.WRITE_BACK:
            return None
        if self.write_through_threshold is not None:
            return self.write_through_threshold
        return 1 if self.write_policy is WritePolicy.WRITE_THROUGH else 2
