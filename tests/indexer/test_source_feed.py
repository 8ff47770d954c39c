"""One publisher: ranks told apart, bad frames counted and survived, trust told."""

import pytest

from indexer import Trust
from protocol import BlockStored, EventBatch, LiveMessage, Rank, WorkerId, encode_batch, live_frames
from tests.indexer.single_feed import WORKER, Feed, batch


def test_batches_without_a_rank_are_the_sources_own() -> None:
    feed = Feed(own_rank=3, has_replay=False)
    feed.connected()
    feed.live(0, None)
    feed.live(1, 3)
    assert feed.claims(3) == {100, 401}
    assert feed.trust(3) is Trust.EXACT
    assert feed.feed.ranks == [Rank(WORKER, 3)]


def test_each_rank_of_a_socket_is_numbered_apart() -> None:
    feed = Feed(has_replay=False)
    feed.connected()
    feed.live(0, 0)
    feed.live(5, 1)
    feed.live(1, 0)
    feed.live(6, 1)
    assert (feed.claims(0), feed.claims(1)) == ({100, 101}, {205, 206})
    assert (feed.trust(0), feed.trust(1)) == (Trust.EXACT, Trust.JOINED)


def test_a_restart_of_one_rank_leaves_the_others_alone() -> None:
    feed = Feed(has_replay=False)
    for seq in range(3):
        feed.live(seq, 0)
        feed.live(seq, 1)
    feed.frames(live_frames(LiveMessage(b"kv", 0, encode_batch(EventBatch(9.0, [], 1)))))
    assert (feed.claims(0), feed.claims(1)) == ({100, 101, 102}, set())


def test_a_rank_that_was_only_presumed_makes_room() -> None:
    feed = Feed(own_rank=0)
    assert feed.connected() == [0]
    feed.reply(0, 4)
    feed.reply(1, 4)
    feed.end()
    assert feed.feed.ranks == [Rank(WORKER, 4)]
    assert (feed.claims(4), feed.trust(4), feed.trust(0)) == ({500, 501}, Trust.EXACT, Trust.NONE)


def test_a_rank_beyond_the_bound_is_refused() -> None:
    feed = Feed(has_replay=False)
    feed.live(0, 7)
    feed.live(0, 8)
    feed.live(0, 1 << 40)
    assert feed.feed.ranks == [Rank(WORKER, 7)]
    assert feed.feed.counters.refused_ranks == 2


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"kv"],
        [b"kv", b"\0" * 8],
        [b"kv", b"\0" * 7, b""],
        [b"kv", b"\xff" * 8, b""],
        [b"kv", b"\0" * 8, b"", b""],
    ],
)
def test_bad_frames_are_counted_and_ignored(frames: list[bytes]) -> None:
    feed = Feed()
    feed.live(0)
    assert feed.frames(frames) == []
    feed.live(1)
    assert feed.trust(0) is Trust.EXACT
    assert feed.feed.counters.bad_frames == 1


def test_foreign_topics_are_counted_and_ignored() -> None:
    feed = Feed()
    feed.live(0, topic=b"kv-events")
    feed.live(7, topic=b"load")
    assert (feed.claims(0), feed.feed.counters.foreign_topics) == ({100}, 1)


def test_an_unreadable_payload_is_a_loss_of_the_rank_that_speaks() -> None:
    feed = Feed(has_replay=False)
    feed.live(0, 5)
    feed.frames([b"kv", (1).to_bytes(8, "big"), b"\xc1"])
    assert (feed.trust(5), feed.sink.losses[Rank(WORKER, 5)]) == (Trust.DEGRADED, 1)
    feed.live(2, 5)
    assert feed.claims(5) == {600, 602}


def test_trust_is_told_when_it_changes_and_only_then() -> None:
    feed = Feed(has_replay=False)
    for seq in (0, 1, 3, 4):
        feed.live(seq)
    rank = Rank(WORKER, 0)
    assert feed.sink.trust_changes == [(rank, Trust.EXACT), (rank, Trust.DEGRADED)]


def test_trust_is_told_again_after_all_was_forgotten_and_before_anything_is_applied() -> None:
    feed = Feed(has_replay=False)
    feed.live(5)
    feed.live(3)
    rank = Rank(WORKER, 0)
    assert feed.sink.trust_changes == [(rank, Trust.JOINED), (rank, Trust.JOINED)]
    assert feed.sink.calls[-3:] == ["forget", "set_trust", "apply"]


@pytest.mark.parametrize("clock", [float("nan"), float("inf"), float("-inf")])
def test_a_clock_that_is_no_time_gives_no_lag(clock: float) -> None:
    feed = Feed(has_replay=False)
    feed.connected()
    payload = encode_batch(EventBatch(clock, [BlockStored([7], None, [1], 1, "GPU")], 0))
    feed.frames(live_frames(LiveMessage(b"kv", 0, payload)))
    status = feed.feed.status(Rank(WORKER, 0))
    assert status is not None
    assert (feed.claims(0), status.last_event_at) == ({7}, 0.0)
    assert (status.last_ts, status.lag_s(wall_offset_s=0.0)) == (None, None)


def test_replayed_batches_are_not_late() -> None:
    """What an engine published before the router was there says nothing of how fast events come."""
    feed = Feed()
    feed.connected()
    feed.now = 90.0
    feed.reply(0)
    feed.end()
    status = feed.feed.status(Rank(WORKER, 0))
    assert status is not None
    assert (feed.claims(0), status.last_event_at) == ({100}, 90.0)
    assert status.lag_s(wall_offset_s=0.0) is None
    feed.live(1)
    status = feed.feed.status(Rank(WORKER, 0))
    assert status is not None
    assert status.lag_s(wall_offset_s=-88.5) == 0.5


def test_the_status_says_where_the_stream_stands() -> None:
    feed = Feed()
    assert feed.feed.status(Rank(WORKER, 0)) is None
    feed.connected()
    feed.end()
    feed.now = 7.0
    feed.live(0)
    feed.live(2)
    status = feed.feed.status(Rank(WORKER, 0))
    assert status is not None
    assert (status.trust, status.last_seq, status.held_batches) == (Trust.REBUILDING, 0, 1)
    assert (status.is_connected, status.has_replay) == (True, True)
    assert status.held_bytes == len(batch(2, 0))
    assert (status.last_event_at, status.last_ts) == (7.0, 0.0)
    assert status.lag_s(wall_offset_s=-6.5) == 0.5
    assert (status.counters.gaps, status.counters.batches) == (1, 1)
    feed.reply(1)
    assert status.counters.batches == 1, "a snapshot"
    assert feed.feed.status(Rank(WorkerId("other"), 0)) is None
