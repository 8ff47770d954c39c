"""A replay of several ranks: what is nobody's is kept within bounds, and it does not take for ever."""

import pytest

from indexer import StreamLimits
from indexer.heard_batch import HeardBatch
from indexer.replay_ending import ReplayEnding
from indexer.shared_replay import SharedReplay

LIMITS = StreamLimits(hold_bytes=100, replay_timeout_s=5.0, replay_total_s=8.0, replay_replies=2)


def replay() -> SharedReplay:
    return SharedReplay(0, {0, 1}, LIMITS, 0.0)


def unreadable(seq: int, size_bytes: int = 1) -> HeardBatch:
    return HeardBatch(seq, b"\xc1" * size_bytes, None)


@pytest.mark.parametrize(
    ("sizes", "are_kept"),
    [
        ([(0, 60), (1, 40)], True),
        ([(0, 60), (1, 41)], False),
        ([(0, 60), (0, 90), (1, 10)], True),  # the second takes the place of the first
        ([(0, 101)], False),
        ([(seq, 0) for seq in range(1024)], True),
        ([(seq, 0) for seq in range(1025)], False),
        ([*((seq, 0) for seq in range(1024)), (7, 1)], True),
    ],
)
def test_what_is_nobodys_is_kept_up_to_a_bound(
    sizes: list[tuple[int, int]], *, are_kept: bool
) -> None:
    one = replay()
    for seq, size_bytes in sizes:
        one.keep(unreadable(seq, size_bytes))
        one.check()
    assert one.is_unreadable is not are_kept
    last = unreadable(*sizes[-1])
    assert one.nobodys(last.seq) == (last if are_kept else None)


def test_it_ends_where_it_falls_silent_or_goes_on_for_too_long() -> None:
    one = replay()
    assert one.overdue(4.9) is None
    assert one.overdue(5.0) is ReplayEnding.FAILED
    one.note_frames(4.0, is_readable=False)  # nobody knows whether that was an answer
    assert one.overdue(5.0) is ReplayEnding.FAILED
    one.note_frames(4.0, is_readable=True)
    assert one.overdue(7.9) is None
    assert one.overdue(8.0) is ReplayEnding.CUT


def test_it_is_long_at_the_bound_of_replies() -> None:
    one = replay()
    one.note_reply()
    assert not one.is_long
    one.note_reply()
    assert one.is_long
