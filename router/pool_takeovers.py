"""Has storage pools taken over from siblings: before their own events are read, or as soon as somebody uses them.

a pool that publishes     subscribed ──▶ taken over ──▶ read
any other                 used ──▶ taken over: copies that are inferred add up
"""

from collections.abc import Collection

from indexer.fleet_index import FleetIndex
from indexer.subscriber import EventSubscriber
from protocol import EventSource, WorkerId
from router.bootstrap import Bootstrap


class PoolTakeovers:
    """A subscriber to pools' sources, and what looks for pools without one. Bounded by the pools that are used.

    Args:
        speaking: sources of the pools that publish.
    """

    def __init__(
        self,
        subscriber: EventSubscriber,
        bootstrap: Bootstrap,
        index: FleetIndex,
        speaking: Collection[EventSource],
    ) -> None:
        self._subscriber = subscriber
        self._bootstrap = bootstrap
        self._index = index
        self._speaking = {source.rank.worker for source in speaking}
        self._seen: set[WorkerId] = set()

    def subscribe(self, source: EventSource) -> None:
        """Listen to a pool, behind what a sibling tells of it."""
        self._subscriber.subscribe(source)
        self._bootstrap.begin_pool(source.rank.worker, (source,))

    def unsubscribe(self, source: EventSource) -> None:
        """Stop listening."""
        self._bootstrap.cancel(source.rank.worker)
        self._subscriber.unsubscribe(source)

    def tick(self, _now: float) -> None:
        """Look which pools without events of their own are used; a few times a second. O(pools)."""
        used = set(self._index.pools.dump_keys()) - self._speaking
        for key in self._seen - used:
            self._bootstrap.cancel(key)
        for key in used - self._seen:
            self._bootstrap.begin_pool(key)
        self._seen = used
