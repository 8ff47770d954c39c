"""Replays of one publisher: one conversation for all its ranks, bounded in time and number."""

from indexer import StreamLimits, Trust
from protocol import (
    EventBatch,
    LiveMessage,
    Rank,
    ReplayReply,
    encode_batch,
    live_frames,
    replay_frames,
)
from tests.indexer.single_feed import WORKER, Feed, batch


def test_both_replay_framings_are_read() -> None:
    feed = Feed()
    assert feed.connected() == [0]
    feed.feed.on_replay([b"", (0).to_bytes(8, "big"), batch(0, 0)], 0.0)
    feed.feed.on_replay([b"", b"kv", (1).to_bytes(8, "big"), batch(1, 0)], 0.0)
    feed.feed.on_replay([b"", b"\xff" * 8, b""], 0.0)
    assert (feed.claims(0), feed.trust(0)) == ({100, 101}, Trust.EXACT)
    assert not feed.feed.is_replaying


def test_bad_and_stray_replies_are_counted_and_ignored() -> None:
    feed = Feed()
    feed.reply(0)
    assert feed.feed.counters.stray_replies == 1
    feed.connected()
    feed.feed.on_replay([b"kv"], 0.0)
    assert feed.feed.counters.bad_replies == 1
    assert feed.feed.is_replaying


def test_replies_after_a_break_belong_to_nobody() -> None:
    feed = Feed()
    feed.connected()
    feed.reply(0)
    feed.disconnected()
    feed.reply(1)
    assert (feed.claims(0), feed.feed.counters.stray_replies) == ({100}, 1)
    assert not feed.feed.is_replaying
    assert feed.connected() == [0]


def test_a_replay_in_silence_fails_after_its_time() -> None:
    feed = Feed()
    feed.live(0)
    assert feed.live(3) == [1]
    is_replaying = []
    for now in (4.9, 9.8, 14.8):  # each reply gives it more time
        feed.tick(now)
        is_replaying.append(feed.feed.is_replaying)
        feed.reply(1)
    assert is_replaying == [True, True, False]
    assert (feed.claims(0), feed.trust(0)) == ({100, 101, 103}, Trust.DEGRADED)


def test_a_replay_that_goes_on_for_ever_is_cut() -> None:
    feed = Feed()
    feed.connected()
    for seq in range(15):
        assert feed.tick(4.0 * seq) == []
        feed.reply(seq)
    assert feed.tick(59.9) == []
    assert feed.tick(60.0) == [15]


def test_a_replay_of_too_many_replies_is_cut() -> None:
    feed = Feed(limits=StreamLimits(replay_replies=3))
    feed.connected()
    assert [feed.reply(seq) for seq in range(3)] == [[], [], [3]]


def test_a_replay_that_cannot_be_asked_for_is_a_loss() -> None:
    feed = Feed()
    feed.live(0)
    assert feed.live(3) == [1]
    assert feed.feed.on_replay_failed(0.0) == []
    assert (feed.claims(0), feed.trust(0)) == ({100, 103}, Trust.DEGRADED)


def test_a_stream_that_needs_no_replay_any_more_leaves_the_conversation() -> None:
    feed = Feed()
    feed.live(0)
    assert feed.live(3) == [1]
    feed.frames(live_frames(LiveMessage(b"kv", 0, encode_batch(EventBatch(9.0, [], 0)))))
    assert not feed.feed.is_replaying


def test_ranks_share_conversations_and_wait_for_each_other() -> None:
    feed = Feed()
    for dp_rank in (0, 1):
        feed.live(0, dp_rank)
    assert feed.live(4, 0) == [1]
    assert feed.live(9, 1) == [], "one conversation at a time"
    for seq in range(1, 5):
        feed.reply(seq, 0)
        feed.reply(seq, 1)
    assert feed.claims(1) == {200}, "it was not asked for this rank"
    assert feed.end() == [1]
    for seq in range(1, 10):
        feed.reply(seq, 1)
    feed.end()
    assert (feed.trust(0), feed.trust(1)) == (Trust.EXACT, Trust.EXACT)
    assert feed.claims(1) == {200 + seq for seq in range(10)}


def test_after_a_break_all_ranks_are_compared_in_one_conversation() -> None:
    feed = Feed()
    for dp_rank in (0, 1):
        for seq in range(3 + dp_rank):
            feed.live(seq, dp_rank)
    feed.disconnected()
    assert feed.connected() == [2]
    feed.reply(2, 0)
    feed.reply(2, 1)
    feed.reply(3, 1)
    feed.end()
    assert (feed.trust(0), feed.trust(1)) == (Trust.EXACT, Trust.EXACT)
    assert not feed.sink.forgets


def test_a_cut_on_the_message_that_asks_anew_does_not_ask_twice() -> None:
    feed = Feed(limits=StreamLimits(replay_replies=2))
    feed.live(0)
    assert feed.live(2) == [1]
    assert feed.reply(1) == []
    restarted = encode_batch(EventBatch(1e6, [], 0))
    frames = replay_frames(b"kv", ReplayReply(2, restarted))
    assert feed.asked(feed.feed.on_replay(frames, 0.0)) == [0]
    status = feed.feed.status(Rank(WORKER, 0))
    assert status is not None
    assert (status.counters.replays, status.counters.replays_cut) == (2, 0)


def test_a_rank_that_makes_room_takes_its_wish_along() -> None:
    feed = Feed(own_rank=0)
    feed.live(0, 1)
    assert feed.live(3, 1) == [1]
    feed.reply(5, 0)  # not of this conversation: it waits for one of its own
    feed.live(0, 2)
    assert feed.feed.ranks == [Rank(WORKER, 1), Rank(WORKER, 2)]
    feed.reply(1, 1)
    feed.reply(2, 1)
    assert feed.end() == []


def test_replays_that_come_to_nothing_are_counted_until_one_does_not() -> None:
    feed = Feed()
    feed.connected()
    feed.tick(5.0)
    feed.now = 15.0
    assert feed.tick(15.0) == [0]
    feed.reply(0)
    feed.tick(20.1)
    trouble = feed.feed.replay_trouble
    assert trouble is not None
    assert (trouble.num_failed, trouble.num_unanswered, trouble.since) == (2, 1, 5.0)
    while not feed.feed.is_replaying:
        feed.tick(feed.now + 1.0)
    feed.reply(0)
    feed.end()
    assert feed.feed.replay_trouble is None


def test_a_quiet_rank_is_not_forgotten_when_others_push_its_batches_out_of_the_buffer() -> None:
    feed = Feed()
    feed.connected()
    feed.reply(0, 0)
    feed.reply(0, 1)
    feed.end()
    for seq in range(1, 6):
        feed.live(seq, 1)
    assert feed.tick(1.0) == [0]
    for seq in (4, 5):
        feed.reply(seq, 1)
    feed.end()
    assert (feed.claims(0), feed.trust(0)) == ({100}, Trust.EXACT)
    assert not feed.sink.forgets


def test_nobody_knows_whether_such_a_rank_goes_on_behind_a_reconnect() -> None:
    feed = Feed()
    for dp_rank in (0, 1):
        feed.live(0, dp_rank)
    feed.disconnected()
    assert feed.connected() == [0]
    for seq in (6, 7):
        feed.reply(seq, 1)
    feed.end()
    assert (feed.claims(0), feed.trust(0)) == ({100}, Trust.DEGRADED)


def test_such_a_rank_is_not_taken_for_empty_by_who_joins_late() -> None:
    feed = Feed()
    assert feed.connected() == [0]
    feed.live(3, 0)
    feed.disconnected()
    assert feed.connected() == [0]
    feed.reply(7, 1)
    feed.end()
    assert (feed.claims(0), feed.trust(0)) == (set(), Trust.NONE)
    feed.live(4, 0)
    feed.end()
    assert feed.trust(0) is Trust.JOINED
