"""Listens to the events of storage pools as long as somebody uses them.

A pool's events mean nothing without the ranks whose blocks they name, so a pool is heard from when its first
worker is learned. When another model or layout comes to use it, it is heard anew: where it replays what it
has published, that fills the new one's books, too.
"""

from collections.abc import Mapping
from typing import Protocol

from protocol import EventSource, PoolName, StoragePool


class _Index(Protocol):
    def pools_named(self, name: PoolName) -> frozenset[StoragePool]:
        """The storage pools behind a name."""


class _Subscriber(Protocol):
    def subscribe(self, source: EventSource) -> None:
        """Listen to a source."""

    def unsubscribe(self, source: EventSource) -> None:
        """Stop listening."""


class PoolSources:
    """The pools that publish, by name; their number is fixed by the configuration."""

    def __init__(
        self, sources: Mapping[PoolName, EventSource], index: _Index, subscriber: _Subscriber
    ) -> None:
        self._sources = dict(sources)
        self._index = index
        self._subscriber = subscriber
        self._heard: dict[PoolName, frozenset[StoragePool]] = {}

    def tick(self, _: float) -> None:
        """Begin and end to listen where workers have come or gone; about once a second. O(pools)."""
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

    def check(self) -> None:
        """Verify that only known pools are listened to, and each for somebody."""
        assert self._heard.keys() <= self._sources.keys()
        assert all(self._heard.values())
