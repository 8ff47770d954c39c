"""One publisher: ranks told apart, one conversation at a time, bad frames counted and survived."""

from collections.abc import Sequence

import pytest

from indexer import RequestReplay, SourceFeed, StreamLimits, Trust
from protocol import (
    BlockStored,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    encode_batch,
    live_frames,
    replay_frames,
)
from tests.indexer.set_sink import SetSink

WORKER = WorkerId("w")
LIMITS = StreamLimits(replay_timeout_s=5.0, replay_total_s=60.0, max_dp_rank=7)


class Feed:
    """A feed with its sink and short words for what it hears."""

    def __init__(
        self, *, has_replay: bool = True, own_rank: int = 0, limits: StreamLimits = LIMITS
    ) -> None:
        self.sink = SetSink()
        replay = "tcp://replay" if has_replay else None
        source = EventSource(Rank(WORKER, own_rank), "tcp://live", replay, "kv")
        self.feed = SourceFeed(source, self.sink, limits)
        self.now = 0.0

    def connected(self) -> list[int]:
        return self.asked(self.feed.on_connected(self.now))

    def disconnected(self) -> list[int]:
        return self.asked(self.feed.on_disconnected(self.now))

    def live(self, seq: int, dp_rank: int | None = 0, topic: bytes = b"kv") -> list[int]:
        frames = live_frames(LiveMessage(topic, seq, batch(seq, dp_rank)))
        return self.frames(frames)

    def frames(self, frames: Sequence[bytes]) -> list[int]:
        return self.asked(self.feed.on_live(frames, self.now))

    def reply(self, seq: int, dp_rank: int | None = 0) -> list[int]:
        frames = replay_frames(b"kv", ReplayReply(seq, batch(seq, dp_rank)))
        return self.asked(self.feed.on_replay(frames, self.now))

    def end(self) -> list[int]:
        return self.asked(self.feed.on_replay(replay_frames(b"kv", ReplayEnd()), self.now))

    def tick(self, now: float) -> list[int]:
        self.now = now
        return self.asked(self.feed.on_tick(now))

    def asked(self, requests: list[RequestReplay]) -> list[int]:
        self.feed.check()
        return [request.first_seq for request in requests]

    def claims(self, dp_rank: int) -> set[int | bytes]:
        return self.sink.claims[Rank(WORKER, dp_rank)]

    def trust(self, dp_rank: int) -> Trust | None:
        return self.sink.trust.get(Rank(WORKER, dp_rank))


def batch(seq: int, dp_rank: int | None) -> bytes:
    block = 100 * ((dp_rank or 0) + 1) + seq
    stored = BlockStored([block], None, [1], 1, "GPU")
    return encode_batch(EventBatch(float(seq), [stored], dp_rank))


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


def test_an_unreadable_batch_that_is_replayed_again_is_of_the_rank_that_knows_it() -> None:
    """Several ranks share a socket; the last batch of one cannot be read, and is looked at in every silence."""
    feed = Feed()
    feed.connected()
    for dp_rank in (0, 1):
        feed.reply(0, dp_rank)
    feed.end()
    unreadable = (1).to_bytes(8, "big"), b"\xc1"
    feed.frames(live_frames(LiveMessage(b"kv", 1, batch(1, 0))))
    feed.frames([b"kv", *unreadable])
    for now in range(2, 200):
        for first_seq in feed.tick(float(now)):
            for dp_rank in (0, 1):
                for seq in range(first_seq, 2 - dp_rank):
                    feed.reply(seq, dp_rank)
            feed.feed.on_replay([b"", b"kv", *unreadable], feed.now)
            feed.end()
    assert all(rank.dp_rank for rank, _ in feed.sink.forgets)
    assert len(feed.sink.forgets) <= 1
    assert feed.claims(0) == {100, 101}


def _unreadable(seq: int) -> list[bytes]:
    return [b"kv", seq.to_bytes(8, "big"), b"\xc1"]


def test_a_payload_that_names_nobody_is_of_the_rank_that_expects_its_number() -> None:
    """Taken for the own rank's, it would be a lower number with other bytes: a restart."""
    feed = Feed(has_replay=False)
    for seq in range(5):
        feed.live(seq, 0)
    for seq in range(2):
        feed.live(seq, 1)
    feed.frames(_unreadable(2))
    assert (feed.trust(0), feed.trust(1)) == (Trust.EXACT, Trust.DEGRADED)
    assert (feed.claims(0), feed.claims(1)) == ({100, 101, 102, 103, 104}, {200, 201})
    assert not feed.sink.forgets


@pytest.mark.parametrize("seq", [1, 9])
def test_a_payload_that_may_be_anybodys_is_left_to_the_gap_behind_it(seq: int) -> None:
    """Two ranks expect number 1, none expects number 9."""
    feed = Feed(has_replay=False)
    feed.live(0, 0)
    feed.live(0, 1)
    feed.frames(_unreadable(seq))
    assert (feed.trust(0), feed.trust(1)) == (Trust.EXACT, Trust.EXACT)
    assert feed.feed.counters.nobodys == 1
    feed.live(1, 0)
    feed.live(2, 1)
    assert (feed.trust(0), feed.trust(1)) == (Trust.EXACT, Trust.DEGRADED)


def _two_ranks_with_a_gap() -> Feed:
    feed = Feed()
    for dp_rank in (0, 1):
        feed.live(0, dp_rank)
    assert feed.live(4, 0) == [1]
    feed.reply(1, 0)
    return feed


def test_a_reply_that_is_nobodys_is_of_the_rank_that_misses_it() -> None:
    feed = _two_ranks_with_a_gap()
    feed.feed.on_replay([b"", *_unreadable(2)], 0.0)  # rank 1 expects 1, rank 0 expects 2
    feed.reply(3, 0)
    feed.end()
    assert (feed.trust(0), feed.trust(1)) == (Trust.DEGRADED, Trust.EXACT)
    assert feed.claims(0) == {100, 101, 103, 104}
    status = feed.feed.status(Rank(WORKER, 0))
    assert status is not None
    assert (status.counters.unreadable, status.counters.lost_batches) == (1, 1)


def test_a_last_reply_that_may_be_anybodys_leaves_nobody_exact_who_may_have_missed_it() -> None:
    feed = Feed()
    for dp_rank in (0, 1, 2):
        for seq in range(2 + (dp_rank == 2)):
            feed.live(seq, dp_rank)
    feed.disconnected()
    feed.connected()
    for dp_rank in (0, 1):
        feed.reply(1, dp_rank)
    feed.reply(2, 2)
    feed.feed.on_replay([b"", *_unreadable(2)], 0.0)  # of rank 0 or of rank 1
    feed.end()
    trust = [feed.trust(dp_rank) for dp_rank in range(3)]
    assert trust == [Trust.DEGRADED, Trust.DEGRADED, Trust.EXACT]
    assert feed.feed.replay_trouble is None, "replays work"


def test_a_reply_of_which_not_even_the_number_is_known_leaves_nobody_exact() -> None:
    feed = _two_ranks_with_a_gap()
    for seq in (2, 3, 4):
        feed.reply(seq, 0)
    feed.feed.on_replay([b"", b"\0" * 7, b""], 0.0)
    feed.end()
    assert (feed.trust(0), feed.trust(1)) == (Trust.DEGRADED, Trust.EXACT)
    assert feed.feed.counters.bad_replies == 1
    trouble = feed.feed.replay_trouble
    assert trouble is not None
    assert (trouble.num_failed, trouble.num_garbled, trouble.num_unanswered) == (1, 1, 0)


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
