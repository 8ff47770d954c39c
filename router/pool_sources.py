"""Listens to the events of storage pools as long as somebody uses them, and knows where nothing is heard.

A pool's events mean nothing without the ranks whose blocks they name, so a pool is heard from when its first
worker is learned. When another model or layout comes to use it, it is heard anew: where it replays what it
has published, that fills the new one's books, too.

    unused ──a worker is learned──▶ connecting ──▶ connected
                                        ◀── lost ──
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from indexer.findings import FindingKind
from indexer.limits import IndexLimits
from protocol import EventSource, PoolName, StoragePool

logger = logging.getLogger(__name__)

UNREACHABLE_S = IndexLimits().unreachable_s
"""A pool may be unconnected for as long as a rank."""
UNUSED_S = 60.0

_WORDS = {
    FindingKind.POOL_UNREACHABLE: "events of storage pool %s cannot be heard: no connection to %s for "
    f"{UNREACHABLE_S:g} s",
    FindingKind.POOL_UNUSED: "storage pool %s is used by no worker, so its events at %s are not listened to",
}


class PoolEar(StrEnum):
    """What of a pool's events reaches us."""

    UNUSED = "unused"  # no worker that is learned shares the pool, so nobody listens
    CONNECTING = "connecting"
    CONNECTED = "connected"


@dataclass(frozen=True, slots=True)
class HeardPool:
    """One pool that publishes, at one moment; ``since`` is when it became so, monotonic seconds."""

    name: PoolName
    endpoint: str
    ear: PoolEar
    since: float

    def trouble(self, now: float) -> FindingKind | None:
        """What is wrong, if it has lasted: not connected though it is used, or used by nobody."""
        for_s = now - self.since
        if self.ear is PoolEar.CONNECTING and for_s >= UNREACHABLE_S:
            return FindingKind.POOL_UNREACHABLE
        if self.ear is PoolEar.UNUSED and for_s >= UNUSED_S:
            return FindingKind.POOL_UNUSED
        return None


class _Index(Protocol):
    def pools_named(self, name: PoolName) -> frozenset[StoragePool]:
        """The storage pools behind a name."""


class _Subscriber(Protocol):
    def subscribe(self, source: EventSource) -> None:
        """Listen to a source."""

    def unsubscribe(self, source: EventSource) -> None:
        """Stop listening."""


class PoolSources:
    """The pools that publish, by name; their number is fixed by the configuration.

    Args:
        is_connected: whether the live socket of a source is connected.
    """

    def __init__(
        self,
        sources: Mapping[PoolName, EventSource],
        index: _Index,
        subscriber: _Subscriber,
        is_connected: Callable[[EventSource], bool],
    ) -> None:
        self._sources = dict(sources)
        self._index = index
        self._subscriber = subscriber
        self._is_connected = is_connected
        self._heard: dict[PoolName, frozenset[StoragePool]] = {}
        self._states: dict[PoolName, HeardPool] = {}
        self._told: set[PoolName] = set()

    def states(self) -> Sequence[HeardPool]:
        """Every pool that publishes, in the order of the configuration; none before the first tick."""
        return tuple(self._states.values())

    def tick(self, now: float) -> None:
        """Begin and end to listen where workers have come or gone; a few times a second. O(pools).

        An outage is logged once, when it has lasted for ``UNREACHABLE_S``, and its end.
        """
        for name, source in self._sources.items():
            used, before = self._index.pools_named(name), self._heard.pop(name, frozenset())
            if before and not used <= before:
                self._subscriber.unsubscribe(source)
                before = frozenset()
            if used and not before:
                self._subscriber.subscribe(source)
            elif before and not used:
                self._subscriber.unsubscribe(source)
            if used:
                self._heard[name] = used
            self._look(name, source, now)

    def _look(self, name: PoolName, source: EventSource, now: float) -> None:
        ear = PoolEar.UNUSED
        if name in self._heard:
            is_connected = self._is_connected(source)
            ear = PoolEar.CONNECTED if is_connected else PoolEar.CONNECTING
        state = self._states.get(name)
        if state is None or state.ear is not ear:
            state = self._states[name] = HeardPool(name, source.endpoint, ear, now)
        self._tell(state, now)

    def _tell(self, state: HeardPool, now: float) -> None:
        trouble = state.trouble(now)
        if trouble is not None and state.name not in self._told:
            self._told.add(state.name)
            logger.warning(_WORDS[trouble], state.name, state.endpoint)
        elif state.ear is PoolEar.CONNECTED and state.name in self._told:
            self._told.discard(state.name)
            logger.info("events of storage pool %s are heard", state.name)

    def check(self) -> None:
        """Verify that only known pools are listened to, and each for somebody."""
        assert self._heard.keys() <= self._sources.keys()
        assert all(self._heard.values())
        assert self._states.keys() <= self._sources.keys()
        assert self._told <= self._states.keys()
        for name, state in self._states.items():
            assert (state.ear is PoolEar.UNUSED) is (name not in self._heard), state
