"""All publishers' messages in, claims out: the one door between sockets and the keeper of claims.

Sources come and go while messages are queued; what arrives for a source that is not listed (any more) is
dropped and counted, so that nothing queued brings a removed worker back. A source that is added again
begins anew.

A rank has one publisher: one that was ever connected speaks for its own rank. What another one of the worker says
under that number is counted, and is of that other one's own rank: engines number their ranks from 0 on each host.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from indexer.actions import ForgetReason, RequestReplay
from indexer.claim_sink import ClaimSink
from indexer.source_counters import SourceCounters
from indexer.source_feed import SourceFeed
from indexer.stream_limits import DEFAULT_STREAM_LIMITS, StreamLimits
from indexer.stream_status import ReplayTrouble, StreamStatus
from indexer.trust import Trust
from protocol import EventSource, Rank, WorkerId


class Intake:
    """Sources to streams to sink. Pure: every request for a replay is returned, to be sent by the caller.

    Args:
        sink: keeper of claims.
        limits: bounds of every stream.

    Attributes:
        num_stray_messages: messages and notices of sources that are not listed.
    """

    def __init__(self, sink: ClaimSink, limits: StreamLimits = DEFAULT_STREAM_LIMITS) -> None:
        self._sink = sink
        self._limits = limits
        self._feeds: dict[EventSource, SourceFeed] = {}
        self._by_worker: dict[WorkerId, list[SourceFeed]] = {}
        self.num_stray_messages = 0

    @property
    def sources(self) -> list[EventSource]:
        """Every listed source, in the order of listing."""
        return list(self._feeds)

    def add_source(self, source: EventSource, now: float) -> None:
        """Listen to ``source`` from now on. A source that is listed already stays as it is."""
        if source not in self._feeds:
            is_anothers = partial(self._is_anothers, source)
            feed = self._feeds[source] = SourceFeed(source, self._sink, self._limits, is_anothers)
            self._by_worker.setdefault(source.rank.worker, []).append(feed)
            self._sink.set_trust(source.rank, Trust.NONE, now)

    def remove_source(self, source: EventSource, now: float) -> None:
        """Drop ``source`` with all claims of its ranks. Unknown sources are ignored."""
        feed = self._feeds.pop(source, None)
        if feed is None:
            return
        worker = source.rank.worker
        self._by_worker[worker].remove(feed)
        if not self._by_worker[worker]:
            del self._by_worker[worker]
        for rank in feed.ranks:
            self._sink.set_trust(rank, Trust.NONE, now)
            self._sink.forget(rank, ForgetReason.WORKER_REMOVED, now)

    def on_connected(self, source: EventSource, now: float) -> list[RequestReplay]:
        """The live socket of ``source`` is connected, for the first time or again."""
        feed = self._feed(source)
        if feed is None:
            return []
        for other in self._by_worker[source.rank.worker]:
            other.give_up(source.rank.dp_rank, now)
        return feed.on_connected(now)

    def on_disconnected(self, source: EventSource, now: float) -> list[RequestReplay]:
        """The live socket of ``source`` lost its connection.

        To be told after every message that came by that connection, and before any of the next one.
        """
        feed = self._feed(source)
        return feed.on_disconnected(now) if feed else []

    def on_live(
        self, source: EventSource, frames: Sequence[bytes], now: float
    ) -> list[RequestReplay]:
        """A message of the live socket of ``source`` came."""
        feed = self._feed(source)
        return feed.on_live(frames, now) if feed else []

    def on_replay(
        self, source: EventSource, frames: Sequence[bytes], now: float
    ) -> list[RequestReplay]:
        """A message of the replay conversation last asked for came."""
        feed = self._feed(source)
        return feed.on_replay(frames, now) if feed else []

    def on_replay_failed(self, source: EventSource, now: float) -> list[RequestReplay]:
        """The replay last asked for cannot be had."""
        feed = self._feed(source)
        return feed.on_replay_failed(now) if feed else []

    def on_failure(self, source: EventSource, now: float) -> list[RequestReplay]:
        """A message of ``source``, or a part of one, broke off while it was dealt with."""
        feed = self._feed(source)
        return feed.on_failure(now) if feed else []

    def on_tick(self, now: float) -> list[tuple[EventSource, RequestReplay]]:
        """Time passes. O(sources × ranks); a few times a second is enough."""
        return [(source, ask) for source in self.sources for ask in self.on_tick_of(source, now)]

    def on_tick_of(self, source: EventSource, now: float) -> list[RequestReplay]:
        """Time passes for ``source``; not while one of its messages is still being read."""
        feed = self._feed(source)
        return feed.on_tick(now) if feed else []

    def is_connected(self, source: EventSource) -> bool:
        """Whether the live socket of ``source`` is connected; O(1)."""
        feed = self._feeds.get(source)
        return feed is not None and feed.is_connected

    def is_replaying(self, source: EventSource) -> bool:
        """Whether the replay last asked for is still of use; if not, its socket can be closed."""
        feed = self._feeds.get(source)
        return feed is not None and feed.is_replaying

    def is_crowded(self, source: EventSource) -> bool:
        """Whether live messages of ``source`` should wait at its socket, so that none overflows the hold."""
        feed = self._feeds.get(source)
        return feed is not None and feed.is_crowded

    def replay_trouble(self, source: EventSource) -> ReplayTrouble | None:
        """Replays of ``source`` that came to nothing, in a row; None where they work, or none was needed."""
        feed = self._feeds.get(source)
        return feed.replay_trouble if feed else None

    def resume(
        self, rank: Rank, seq: int, digests: Sequence[tuple[int, int]], standing: Trust, now: float
    ) -> bool:
        """Claims of a rank were loaded that rest on every batch up to ``seq``; before it is heard.

        Returns:
            Whether its stream begins there; False, and nothing happens, where it ``can_resume`` no more.
        """
        feed = self._feed_of(rank)
        return feed is not None and feed.resume(rank.dp_rank, seq, digests, standing, now)

    def can_resume(self, rank: Rank) -> bool:
        """Whether a source may speak for the rank, and none has done or been asked to so far."""
        feed = self._feed_of(rank)
        return feed is not None and feed.can_resume(rank.dp_rank)

    def digests(self, rank: Rank, seq: int, count: int) -> list[tuple[int, int]]:
        """Numbers and digests of what is known of a rank's last payloads up to ``seq``."""
        for feed in self._by_worker.get(rank.worker, ()):
            found = feed.digests(rank.dp_rank, seq, count)
            if found:
                return found
        return []

    def status(self, rank: Rank) -> StreamStatus | None:
        """Snapshot of a rank's stream; None where no source speaks for it. O(sources of its worker)."""
        for feed in self._by_worker.get(rank.worker, ()):
            status = feed.status(rank)
            if status is not None:
                return status
        return None

    def resets(self, worker: WorkerId) -> Mapping[int, int]:
        """How often each rank of a worker that was heard has begun anew; of two streams the first one's. O(ranks)."""
        found: dict[int, int] = {}
        for feed in reversed(self._by_worker.get(worker, ())):
            found |= feed.resets
        return found

    def statuses(self) -> list[StreamStatus]:
        """Snapshots of all streams."""
        found = [feed.status(rank) for feed in self._feeds.values() for rank in feed.ranks]
        return [status for status in found if status is not None]

    def source_counters(self) -> dict[Rank, SourceCounters]:
        """Snapshots of what happened on each listed source's sockets, by its own rank."""
        return {source.rank: feed.counters.copy() for source, feed in self._feeds.items()}

    def _feed_of(self, rank: Rank) -> SourceFeed | None:
        """The feed whose own rank it is, or the only one of its worker."""
        feeds = {feed.own_rank: feed for feed in self._by_worker.get(rank.worker, ())}
        feed = feeds.get(rank.dp_rank)
        if feed is None and len(feeds) == 1:
            (feed,) = feeds.values()
        return feed

    def _is_anothers(self, source: EventSource, dp_rank: int) -> bool:
        """Whether another publisher of the worker was ever connected whose own rank it is. O(ranks)."""
        feeds = self._by_worker.get(source.rank.worker, ())
        own = (feed for feed in feeds if feed.own_rank == dp_rank != source.rank.dp_rank)
        return any(feed.counters.connects for feed in own)

    def _feed(self, source: EventSource) -> SourceFeed | None:
        feed = self._feeds.get(source)
        if feed is None:
            self.num_stray_messages += 1
        return feed

    def check(self) -> None:
        """Verify the invariants of all feeds, and that they are known by worker."""
        by_worker = [feed for feeds in self._by_worker.values() for feed in feeds]
        assert all(self._by_worker.values()), "a worker without sources is known"
        assert {id(feed) for feed in by_worker} == {id(feed) for feed in self._feeds.values()}
        for feed in self._feeds.values():
            feed.check()
