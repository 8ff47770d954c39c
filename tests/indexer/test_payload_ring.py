"""What was applied under a number, as long as it is remembered."""

import pytest

from indexer.payload_ring import PayloadRing


def test_the_last_numbers_can_be_compared() -> None:
    ring = PayloadRing(3)
    for seq in range(5):
        ring.remember(seq, b"%d" % seq)
    assert [ring.compare(seq, b"%d" % seq) for seq in range(6)] == [
        None,
        None,
        True,
        True,
        True,
        None,
    ]
    assert ring.compare(4, b"other") is False
    assert [seq in ring for seq in range(6)] == [False, False, True, True, True, False]


def test_numbers_that_were_skipped_are_not_known() -> None:
    ring = PayloadRing(4)
    ring.remember(0, b"a")
    ring.remember(9, b"b")
    assert [seq for seq in range(10) if seq in ring] == [0, 9]
    ring.clear()
    assert ring.compare(9, b"b") is None


def test_a_ring_has_slots() -> None:
    with pytest.raises(ValueError, match="at least one"):
        PayloadRing(0)
