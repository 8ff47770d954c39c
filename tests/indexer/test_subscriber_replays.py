"""Replays as engines speak them, over real sockets: every way to answer, and not to."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from indexer import SocketLimits, StreamLimits, StreamStatus, Trust
from protocol import EventSource, Rank, ReplayReply, WorkerId, replay_frames
from tests.indexer.raw_publisher import END, Answer, RawPublisher, buffered, payload
from tests.indexer.running_fleet import QUICK, Fleet, running

IMPATIENT = StreamLimits(replay_timeout_s=0.15, repair_s=60.0)


class Scene:
    """One publisher, heard by a running fleet."""

    def __init__(self, fleet: Fleet, publisher: RawPublisher) -> None:
        self.fleet, self.publisher = fleet, publisher
        self.source = EventSource(
            Rank(WorkerId("w")), publisher.endpoint, publisher.replay_endpoint
        )

    def claims(self, dp_rank: int = 0) -> set[int | bytes]:
        return self.fleet.sink.claims[Rank(WorkerId("w"), dp_rank)]

    def trust(self, dp_rank: int = 0) -> Trust | None:
        return self.fleet.sink.trust.get(Rank(WorkerId("w"), dp_rank))

    def status(self, dp_rank: int = 0) -> StreamStatus:
        found = self.fleet.intake.status(Rank(WorkerId("w"), dp_rank))
        assert found is not None
        return found

    async def until(self, is_so: Callable[[], object]) -> None:
        await self.fleet.changes.until(is_so)


@asynccontextmanager
async def scene(answer: Answer, stream_limits: StreamLimits = IMPATIENT) -> AsyncIterator[Scene]:
    """A publisher that has subscribers and published nothing yet."""
    async with running(QUICK, stream_limits) as fleet:
        publisher = RawPublisher(fleet.changes, answer=answer)
        try:
            one = Scene(fleet, publisher)
            fleet.subscriber.subscribe(one.source)
            await fleet.changes.until(lambda: publisher.num_subscribers > 0)
            await fleet.changes.until(
                lambda: publisher.requests and not fleet.intake.is_replaying(one.source)
            )
            yield one
        finally:
            publisher.close()


BATCHES = [(seq, payload(seq)) for seq in range(10)]
MISSING = slice(3, 6)  # not heard live


def _garbled(first_seq: int) -> list[list[bytes]]:
    return [replay_frames(b"", ReplayReply(first_seq, BATCHES[first_seq][1])), [b"what"], END]


def _hanging_midway(first_seq: int) -> list[list[bytes]]:
    return [replay_frames(b"", ReplayReply(first_seq, BATCHES[first_seq][1]))]


ANSWERS: dict[str, tuple[Answer, Trust, set[int]]] = {
    "whole": (buffered(BATCHES), Trust.EXACT, set()),
    "whole, without topic frames": (
        buffered(BATCHES, has_topic_frame=False),
        Trust.EXACT,
        set(),
    ),
    "truncated": (buffered(BATCHES[:7], steps=2), Trust.DEGRADED, {3, 4}),
    "truncated, without topic frames": (
        buffered(BATCHES[:7], steps=2, has_topic_frame=False),
        Trust.DEGRADED,
        {3, 4},
    ),
    "empty": (buffered([]), Trust.DEGRADED, {3, 4, 5}),
    "none": (lambda _: (), Trust.DEGRADED, {3, 4, 5}),
    "hanging midway": (_hanging_midway, Trust.DEGRADED, {4, 5}),
    "frames that are no reply": (_garbled, Trust.DEGRADED, {4, 5}),
    "with an unreadable payload": (
        buffered([*BATCHES[:4], (4, b"\xc1"), *BATCHES[5:]]),
        Trust.DEGRADED,
        {4},
    ),
    "twice": (buffered([one for one in BATCHES for _ in range(2)]), Trust.EXACT, set()),
    "from 0, whatever was asked for": (lambda _: buffered(BATCHES)(0), Trust.EXACT, set()),
}


@pytest.mark.parametrize(("answer", "trust", "lost"), ANSWERS.values(), ids=ANSWERS)
async def test_a_gap(answer: Answer, trust: Trust, lost: set[int]) -> None:
    """What was withheld is applied in order, or its loss is told; the stream goes on in any case."""
    async with scene(buffered([])) as one:
        one.publisher.answer = answer
        for seq, body in BATCHES[:3]:
            one.publisher.send(seq, body)
        await one.until(lambda: one.claims() == {0, 1, 2})
        for seq, body in BATCHES[6:]:
            one.publisher.send(seq, body)
        whole = {seq for seq, _ in BATCHES}
        await one.until(lambda: one.claims() >= {6, 7, 8, 9} and one.trust() is trust)
        assert whole - one.claims() == lost
        counters = one.status().counters
        assert (counters.lost_batches, counters.num_resets) == (len(lost), 0)
        order = [int(b.ts) for rank, b in one.fleet.sink.batches]
        assert order == sorted(order)


async def test_a_reply_that_comes_too_late_is_dropped() -> None:
    """The conversation was given up, its socket closed: nothing of it reaches another one."""
    late: list[list[bytes]] = []
    async with scene(lambda _: late) as one:
        one.publisher.send(*BATCHES[0])
        one.publisher.send(*BATCHES[2])
        await one.until(lambda: one.claims() == {0, 2})
        assert one.trust() is Trust.DEGRADED
        one.publisher.answer = buffered(BATCHES)
        one.publisher.send(*BATCHES[3])
        await one.until(lambda: 3 in one.claims())
        assert 1 not in one.claims()
        assert one.trust() is Trust.DEGRADED


async def test_ranks_that_share_a_socket() -> None:
    """Their numbers are their own, live and replayed, in whatever order they come."""
    batches = [(seq, payload(100 * dp + seq, dp)) for seq in range(6) for dp in range(3)]
    async with scene(buffered(batches)) as one:
        for seq, body in batches:
            if seq not in (2, 3):
                one.publisher.send(seq, body)
        for dp in range(3):
            whole = {100 * dp + seq for seq in range(6)}
            await one.until(lambda dp=dp, whole=whole: one.claims(dp) == whole)  # type: ignore[misc]
            await one.until(lambda dp=dp: one.trust(dp) is Trust.EXACT)  # type: ignore[misc]
        assert all(one.status(dp).counters.losses == 0 for dp in range(3))


async def test_several_ports_of_a_worker() -> None:
    """A port a rank: each has its stream, its replays and its trust."""
    async with running(QUICK, IMPATIENT) as fleet:
        ranks = range(4)
        batches = [[(seq, payload(10 * dp + seq)) for seq in range(3)] for dp in ranks]
        publishers = [RawPublisher(fleet.changes, answer=buffered(batches[dp])) for dp in ranks]
        publishers[2].answer = lambda _: ()
        worker = WorkerId("w")
        for dp, publisher in enumerate(publishers):
            source = EventSource(Rank(worker, dp), publisher.endpoint, publisher.replay_endpoint)
            fleet.subscriber.subscribe(source)
        for dp in (0, 1, 3):
            rank = Rank(worker, dp)
            await fleet.changes.until(
                lambda rank=rank: fleet.sink.trust.get(rank) is Trust.EXACT  # type: ignore[misc]
            )
            assert fleet.sink.claims[rank] == {10 * dp + seq for seq in range(3)}
        await fleet.changes.until(lambda: fleet.sink.trust.get(Rank(worker, 2)) is Trust.NONE)
        for publisher in publishers:
            publisher.close()


async def test_one_that_hangs_delays_no_other() -> None:
    """Eight workers with a backlog: seven are recovered while the eighth is still being waited for."""
    patient = StreamLimits(replay_timeout_s=3600.0, replay_total_s=7200.0)
    async with running(SocketLimits(tick_s=0.02), patient) as fleet:
        batches = [(seq, payload(seq)) for seq in range(300)]
        publishers = [RawPublisher(fleet.changes, answer=buffered(batches)) for _ in range(8)]
        publishers[3].answer = lambda _: ()
        sources = [
            EventSource(Rank(WorkerId(f"w{i}")), one.endpoint, one.replay_endpoint)
            for i, one in enumerate(publishers)
        ]
        for source in sources:
            fleet.subscriber.subscribe(source)
        for source in sources:
            if source is not sources[3]:
                await fleet.trust(source, Trust.EXACT)
                await fleet.claims(source, *range(300))
        await fleet.trust(sources[3], Trust.REBUILDING)
        for publisher in publishers:
            publisher.close()


@pytest.mark.parametrize(
    "frames",
    [
        [b"kv"],
        [b"kv", b"\0" * 8],
        [b"kv", b"\0" * 7, b"x"],
        [b"kv", b"\xff" * 8, b"x"],
        [b"kv", b"\0" * 8, b"x", b"x"],
        [b"kv", b"", b""],
    ],
)
async def test_frames_that_are_no_message(frames: list[bytes]) -> None:
    async with scene(buffered([])) as one:
        one.publisher.send(*BATCHES[0])
        one.publisher.send_frames(frames)
        one.publisher.send(*BATCHES[1])
        await one.until(lambda: one.claims() == {0, 1})
        assert one.trust() is Trust.EXACT
        assert one.fleet.intake.source_counters()[one.source.rank].bad_frames == 1


async def test_foreign_topics_on_the_same_port() -> None:
    """Of another subscription: they do not even arrive, and what they number is nobody's gap."""
    async with running() as fleet:
        publisher = RawPublisher(fleet.changes, answer=buffered([]))
        source = EventSource(Rank(WorkerId("w")), publisher.endpoint, topic="kv")
        fleet.subscriber.subscribe(source)
        await fleet.changes.until(lambda: publisher.num_subscribers > 0)
        publisher.send(0, payload(0), b"kv@a")
        publisher.send(77, payload(77), b"load")
        publisher.send(1, payload(1), b"kv@a")
        await fleet.claims(source, 0, 1)
        assert fleet.subscriber.counters.messages == 2
        publisher.close()
