"""Payloads of one publisher that cannot be read: of which rank they are, or may be."""

import pytest

from indexer import StreamLimits, Trust
from protocol import LiveMessage, Rank, live_frames
from tests.indexer.single_feed import WORKER, Feed, batch


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


def test_a_reply_that_may_be_of_another_rank_is_no_sign_of_a_restart() -> None:
    """Rank 0's batch is remembered no more, and has the very number that rank 1 expects."""
    feed = Feed(limits=StreamLimits(remembered_payloads=1, silence_s=5.0))
    feed.connected()
    feed.end()
    for dp_rank in (0, 1):
        for seq in range(2 - dp_rank):
            feed.live(seq, dp_rank)
    feed.frames(_unreadable(2))  # only rank 0 expects it
    feed.live(3, 0)
    feed.live(1, 1)
    for now in range(1, 60):
        for first_seq in feed.tick(float(now)):
            for seq in range(first_seq, 2):
                feed.reply(seq, 0)
            if first_seq <= 2:
                feed.feed.on_replay([b"", *_unreadable(2)], feed.now)
            feed.reply(3, 0)
            for seq in range(first_seq, 2):
                feed.reply(seq, 1)
            feed.end()
    assert not [rank for rank, reason in feed.sink.forgets if rank.dp_rank == 1]
    assert feed.claims(1) == {200, 201}
    assert feed.trust(1) is Trust.DEGRADED, "the batch may have been its own all the same"


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


def test_replies_that_are_nobodys_and_too_many_to_keep_leave_nobody_exact() -> None:
    feed = Feed(limits=StreamLimits(hold_bytes=200))
    for dp_rank in (0, 1):
        feed.live(0, dp_rank)
    assert feed.live(4, 0) == [1]
    for seq in (2, 3):
        feed.feed.on_replay([b"", b"kv", seq.to_bytes(8, "big"), b"\xc1" * 101], 0.0)
        feed.feed.check()
    for seq in (1, 2, 3, 4):
        feed.reply(seq, 0)
    feed.end()
    assert (feed.trust(0), feed.trust(1)) == (Trust.DEGRADED, Trust.EXACT)
