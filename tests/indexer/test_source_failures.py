"""Exceptions that nobody expected: they cost the source that they came from, and nobody else anything."""

import logging

import msgpack
import pytest

from indexer import SocketLimits, Trust
from indexer.source_failures import Failed, SourceFailures
from protocol import EventSource, LiveMessage, Rank, WorkerId, live_frames
from tests.indexer.breaking_sink import BreakingSink, SinkError
from tests.indexer.running_fleet import Fleet, running
from tests.indexer.single_feed import Feed

BAD = 13
ODD_EVENT = {"event_type": "stored", "object_key": "a" * 64 + "_" + "1" * 5_000}


def failures(fleet: Fleet, source: EventSource) -> dict[Failed, int]:
    """What was counted, without what was not."""
    counts = fleet.subscriber.traffic().by_rank[source.rank]
    return {where: counts[where] for where in Failed if counts[where]}


async def test_an_event_with_more_digits_than_a_number_has() -> None:
    async with running() as fleet:
        odd, other = fleet.publisher(), fleet.publisher()
        for publisher, name in ((odd, "odd"), (other, "other")):
            fleet.subscriber.subscribe(publisher.source(name))
            await fleet.subscribed(publisher)
            await fleet.trust(publisher.source(name), Trust.EXACT)
        payload = msgpack.packb([1.0, [ODD_EVENT], 0])
        odd.send(live_frames(LiveMessage(b"", 0, payload)))
        odd.send(live_frames(LiveMessage(b"", 1, payload)))
        other.publish(1)
        await fleet.claims(other.source("other"), 1)
        await fleet.changes.until(lambda: fleet.count("messages") == 3)
        assert fleet.count("failures") == 0


@pytest.mark.parametrize("has_replay", [False, True])
async def test_a_live_message_that_breaks_the_keeper(
    has_replay: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(sink=BreakingSink(BAD)) as fleet:
        odd, other = fleet.publisher(), fleet.publisher()
        source, sound = odd.source("odd", has_replay=has_replay), other.source("other")
        for publisher, one in ((odd, source), (other, sound)):
            fleet.subscriber.subscribe(one)
            await fleet.subscribed(publisher)
        if has_replay:
            # What comes before its first replay has ended waits, and breaks with a reply.
            await fleet.trust(source, Trust.EXACT)
        for block in (1, BAD, 2, BAD, 3):
            odd.publish(block)
        other.publish(4)
        await fleet.claims(source, 1, 2, 3)
        await fleet.claims(sound, 4)
        await fleet.trust(source, Trust.DEGRADED)
        assert fleet.sink.losses[source.rank] >= 1
        assert failures(fleet, source) == {Failed.LIVE: 2}
        assert failures(fleet, sound) == {}
        assert fleet.count("failures") == 2
        assert fleet.sink.losses[sound.rank] == 0
    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 1
    assert source.endpoint in errors[0].getMessage()


async def test_a_reply_that_breaks_the_keeper() -> None:
    """The replay goes on behind it."""
    async with running(sink=BreakingSink(BAD)) as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        for block in (1, BAD, 2):
            publisher.publish(block)
        fleet.subscriber.subscribe(source)
        await fleet.claims(source, 1, 2)
        await fleet.trust(source, Trust.DEGRADED)
        assert failures(fleet, source) == {Failed.REPLY: 1}


async def test_a_part_of_a_long_message_that_breaks_the_keeper() -> None:
    async with running(SocketLimits(tick_s=0.02, turn_s=0.001), sink=BreakingSink(5_000)) as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        await fleet.trust(source, Trust.EXACT)
        publisher.publish_batch(range(10_000))
        publisher.publish(20_000)
        await fleet.changes.until(lambda: 20_000 in fleet.sink.claims[source.rank])
        claims = fleet.sink.claims[source.rank]
        assert claims >= {*range(4_800)}
        assert 5_000 not in claims
        await fleet.trust(source, Trust.DEGRADED)
        assert failures(fleet, source) == {Failed.PART: 1}


async def test_a_source_at_which_everything_breaks_begins_anew() -> None:
    sink = BreakingSink()
    async with running(sink=sink) as fleet:
        publisher, other = fleet.publisher(), fleet.publisher()
        source, sound = publisher.source("w"), other.source("other")
        for one, announced in ((publisher, source), (other, sound)):
            fleet.subscriber.subscribe(announced)
            await fleet.subscribed(one)
        publisher.publish(1)
        await fleet.claims(source, 1)
        sink.dead.add("w")
        publisher.publish(2)
        await fleet.changes.until(lambda: failures(fleet, source).get(Failed.SOURCE, 0) > 3)
        other.publish(3)
        await fleet.claims(sound, 3)
        sink.dead.clear()
        await fleet.claims(source, 1, 2)
        await fleet.trust(source, Trust.EXACT)
        fleet.subscriber.unsubscribe(source)
        assert source.rank not in fleet.subscriber.traffic().by_rank
        assert fleet.count("failures") > 3


def test_a_question_that_was_lost_with_a_message_is_asked_again() -> None:
    """What was held is released, and breaks the keeper before the next question is put."""
    bad = 102
    one = Feed(sink=BreakingSink(bad))
    assert one.connected() == [0]
    one.end()
    one.live(0)
    assert one.live(2) == [1]
    one.live(4)
    one.reply(1)
    with pytest.raises(SinkError):
        one.end()
    assert one.asked(one.feed.on_failure(0.0)) == [2]
    for seq in (2, 3):
        one.reply(seq)
    one.end()
    assert one.claims(0) == {100, 101, 103, 104}
    assert one.trust(0) is Trust.DEGRADED


def test_a_failure_of_a_source_that_has_said_nothing_costs_nothing() -> None:
    one = Feed()
    assert one.connected() == [0]
    assert one.asked(one.feed.on_failure(0.0)) == []
    one.reply(0)
    one.end()
    assert one.trust(0) is Trust.EXACT


def test_failures_are_logged_once_a_source_and_kind(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise error

    failed = SourceFailures()
    sources = [EventSource(Rank(WorkerId(name)), f"tcp://{name}:1") for name in "ab"]
    kinds: list[tuple[Failed, Exception]] = [
        (Failed.LIVE, ValueError("1")), (Failed.LIVE, ValueError("2")), (Failed.LIVE, KeyError("3")),
        (Failed.REPLY, ValueError("4")),
    ]  # fmt: skip
    for source in sources:
        for where, error in kinds:
            assert failed.guard(source, where, fail, error) is None
        assert failed.guard(source, Failed.LIVE, int, "7") == 7
    assert len(caplog.records) == 6
    assert failed.counts(sources[0]) == {
        Failed.LIVE: 3, Failed.REPLY: 1, Failed.PART: 0, Failed.SOURCE: 0,
    }  # fmt: skip
    failed.forget(sources[0])
    assert not any(failed.counts(sources[0]).values())
    assert failed.num_all == 8
