"""What one source may take at a time: floods, backlogs, a loop that stood still."""

from indexer import SocketLimits, StreamLimits, Trust
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
