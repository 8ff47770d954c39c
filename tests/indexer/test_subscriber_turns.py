"""What one source may take at a time: floods, backlogs, a loop that stood still."""

import asyncio

import pytest

from indexer import SocketLimits, StreamLimits, Trust
from protocol import BlockStored
from tests.indexer.running_fleet import running


async def test_a_backlog_waits_until_the_replay_has_made_room() -> None:
    limits = SocketLimits(messages_per_turn=4, tick_s=0.02)
    async with running(limits, StreamLimits(hold_batches=8)) as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(0)
        await fleet.claims(source, 0)
        publisher.publish(1, is_withheld=True)
        for block in range(2, 300):
            publisher.publish(block)
        await fleet.claims(source, *range(300))
        await fleet.trust(source, Trust.EXACT)
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.hold_overflows, status.counters.losses) == (0, 0)


async def test_a_backlog_goes_on_after_a_replay_that_hangs() -> None:
    limits = SocketLimits(messages_per_turn=4, tick_s=0.02)
    stream_limits = StreamLimits(hold_batches=8, replay_timeout_s=0.1)
    async with running(limits, stream_limits) as fleet:
        publisher = fleet.publisher(answers=False)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        await fleet.trust(source, Trust.NONE)
        publisher.publish(0)
        publisher.publish(1, is_withheld=True)
        for block in range(2, 100):
            publisher.publish(block)
        await fleet.claims(source, 0, *range(2, 100))
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.hold_overflows, status.counters.lost_batches) == (0, 1)


async def test_replies_that_came_while_the_loop_was_busy_are_no_silence() -> None:
    async with running(SocketLimits(tick_s=3600.0)) as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(0)
        await fleet.claims(source, 0)
        await fleet.trust(source, Trust.EXACT)
        publisher.publish(1, is_withheld=True)
        publisher.publish(2)
        await fleet.changes.until(lambda: 1 in publisher.requests)
        fleet.await_reply(source)
        fleet.passed_s = 10.0
        fleet.subscriber.tick()
        await fleet.claims(source, 0, 1, 2)
        status = fleet.intake.status(source.rank)
        assert status is not None
        assert (status.counters.replays_failed, status.counters.losses) == (0, 0)


async def test_a_flood_leaves_others_their_turn() -> None:
    limits = SocketLimits(messages_per_turn=4, tick_s=0.02)
    num_flood = 3000
    async with running(limits) as fleet:
        flood, calm = fleet.publisher(), fleet.publisher()
        loud, quiet = flood.source("loud"), calm.source("quiet")
        fleet.subscriber.subscribe(loud)
        fleet.subscriber.subscribe(quiet)
        for publisher in (flood, calm):
            await fleet.subscribed(publisher)
        await fleet.trust(loud, Trust.EXACT)
        await fleet.trust(quiet, Trust.EXACT)
        for block in range(num_flood // 2):
            flood.publish(block)
        calm.publish(7)
        for block in range(num_flood // 2):
            flood.publish(block)
        await fleet.claims(quiet, 7)
        heard = sum(rank == loud.rank for rank, _ in fleet.sink.batches)
        assert heard < num_flood


@pytest.mark.parametrize("is_replayed", [False, True])
async def test_a_giant_message_leaves_others_their_turn(is_replayed: bool) -> None:
    """However long one takes to read and to tell, it is told in order and in parts."""
    num_blocks = 20_000
    limits = SocketLimits(tick_s=0.02, turn_s=0.001)
    async with running(limits) as fleet:
        giant, calm = fleet.publisher(), fleet.publisher()
        loud, quiet = giant.source("loud"), calm.source("quiet")
        fleet.subscriber.subscribe(loud)
        fleet.subscriber.subscribe(quiet)
        for publisher in (giant, calm):
            await fleet.subscribed(publisher)
        await fleet.trust(loud, Trust.EXACT)
        await fleet.trust(quiet, Trust.EXACT)
        giant.publish_batch(range(num_blocks), is_withheld=is_replayed)
        giant.publish(num_blocks)
        await fleet.changes.until(lambda: len(fleet.sink.claims[loud.rank]) > 0)
        calm.publish(7)
        await fleet.claims(quiet, 7)
        assert len(fleet.sink.claims[loud.rank]) < num_blocks
        await fleet.claims(loud, *range(num_blocks + 1))
        told = [e.block_hashes[0] for rank, b in fleet.sink.batches for e in b.events
                if rank == loud.rank and isinstance(e, BlockStored)]  # fmt: skip
        assert told == list(range(num_blocks + 1))
        assert max(len(batch.events) for _, batch in fleet.sink.batches) <= 128
        assert fleet.sink.losses[loud.rank] == 0


async def test_a_giant_message_of_a_removed_source_is_dropped() -> None:
    async with running(SocketLimits(tick_s=0.02, turn_s=0.001)) as fleet:
        giant = fleet.publisher()
        loud = giant.source("loud")
        fleet.subscriber.subscribe(loud)
        await fleet.subscribed(giant)
        await fleet.trust(loud, Trust.EXACT)
        giant.publish_batch(range(20_000))
        await fleet.changes.until(lambda: len(fleet.sink.claims[loud.rank]) > 0)
        fleet.subscriber.unsubscribe(loud)
        num_told = len(fleet.sink.batches)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(fleet.sink.batches) == num_told
        assert fleet.sink.claims[loud.rank] == set()


async def test_a_giant_message_that_is_half_read_goes_with_its_source() -> None:
    async with running(SocketLimits(tick_s=0.02, turn_s=0.001)) as fleet:
        giant = fleet.publisher()
        loud = giant.source("loud")
        fleet.subscriber.subscribe(loud)
        await fleet.subscribed(giant)
        await fleet.trust(loud, Trust.EXACT)
        giant.publish_batch(range(20_000))
        await fleet.changes.until(lambda: fleet.subscriber.is_reading(loud))
        fleet.subscriber.unsubscribe(loud)
        assert not fleet.subscriber.is_reading(loud)
        fleet.subscriber.subscribe(loud)
        await fleet.claims(loud, *range(20_000))  # by its replay, from the first part on
        assert fleet.sink.losses[loud.rank] == 0
