"""What the tree core takes and gives back: keys, handles, results. All lengths are tokens."""

from dataclasses import dataclass
from typing import NamedTuple

from protocol import EngineHash
from worker.tree.node import Node


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A token sequence in its namespace: equal tokens under another extra key or salt never meet."""

    tokens: tuple[int, ...]
    extra_key: str | None = None
    cache_salt: str | None = None


class PageHash(NamedTuple):
    """Both names of one page: ``digest`` (32 bytes) keys it in storage, ``event_hash`` on the wire."""

    digest: bytes
    event_hash: EngineHash


@dataclass(frozen=True, slots=True)
class Match:
    """The longest readable prefix of a key, in whole pages.

    Attributes:
        device_tokens: on the device, from the start.
        host_tokens: readable beyond that; a load back brings those of them that are not on the
            device there.
        device_node: deepest device node of the match, to be locked by the request; the root where
            nothing is on the device.
        node: deepest node of the whole match: what a load back loads up to, and the anchor of a
            storage refill.
    """

    device_tokens: int
    host_tokens: int
    device_node: Node
    node: Node

    @property
    def tokens(self) -> int:
        """Length of the whole match."""
        return self.device_tokens + self.host_tokens


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What an insert found and did.

    Attributes:
        prefix_tokens: already in the tree, on any tier.
        device_tokens: slots that the tree took over: new pages, and pages that were on host only.
        released_tokens: owned slots given back: duplicates and the tail that fills no page.
        node: deepest node of the key, to be locked by a request that goes on.
        to_write: nodes of the key that have hits enough to be written to storage, top down, each time that they
            are hit; where host only stages, and nowhere else.
    """

    prefix_tokens: int
    device_tokens: int
    released_tokens: int
    node: Node
    to_write: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadBack:
    """A copy from host to device in flight. Its pages are readable and announced from the start; they
    cannot be evicted before it is finished."""

    id: int
    num_tokens: int
    node: Node


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy from device to host in flight: host slots are taken, nothing is announced yet."""

    id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class StoragePage:
    """One page on its way to storage: key and content."""

    digest: bytes
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AckedBackup:
    """A finished copy: the pages that are readable on host from now on, in order, parents first."""

    num_tokens: int
    pages: tuple[StoragePage, ...]


@dataclass(frozen=True, slots=True)
class InsertHostResult:
    """What a storage refill did.

    Attributes:
        prefix_tokens: leading tokens that were on host already; their slots are given back.
        inserted_tokens: tokens that became readable on host.
        is_dropped: nothing was taken: the anchor has no host copy to chain to, or is gone.
        node: deepest node that now holds the refilled tokens; None if dropped.
    """

    prefix_tokens: int
    inserted_tokens: int
    is_dropped: bool
    node: Node | None


@dataclass(frozen=True, slots=True)
class WindowEviction:
    """What sliding-window pressure freed: slots of the full-attention pool, and of the window's own."""

    device_tokens: int
    window_tokens: int


@dataclass(frozen=True, slots=True)
class Residency:
    """What the core truly holds: event hashes by medium, in no particular order.

    ``host_in_flight``: copies issued and not acknowledged; they are not in ``host``.
    """

    device: tuple[EngineHash, ...]
    host: tuple[EngineHash, ...]
    host_in_flight: tuple[EngineHash, ...]


@dataclass(slots=True)
class TreeCounters:
    """Tokens since construction, never reset; ``refills_dropped`` counts calls."""

    inserted: int = 0
    revived: int = 0
    backed_up: int = 0
    backups_refused: int = 0
    demoted: int = 0
    evicted: int = 0
    loaded_back: int = 0
    refilled: int = 0
    refills_dropped: int = 0
    host_evicted: int = 0
