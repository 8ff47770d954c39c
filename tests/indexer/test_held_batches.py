"""The queue of held batches: order, bounds, comparison."""

from indexer import HeardBatch
from indexer.held_batches import HeldBatches
from tests.indexer.stream_script import heard


def _seqs(held: HeldBatches) -> list[int]:
    return [held.pop_first().seq for _ in range(len(held))]


def test_batches_come_out_in_order_and_readable_again() -> None:
    held = HeldBatches(10, 10_000)
    for word in ("3", "4?", "7"):
        assert held.add(heard(word))
    held.check()
    assert held.first_seq == 3
    assert held.pop_first() == heard("3")
    assert held.pop_first().batch is None
    assert held.pop_first() == heard("7")
    assert (held.size_bytes, len(held)) == (0, 0)
    assert HeldBatches(1, 1).first_seq is None


def test_the_bounds_are_kept() -> None:
    held = HeldBatches(2, 10)
    assert held.add(HeardBatch(1, b"12345678", None))
    assert not held.add(HeardBatch(2, b"123", None)), "bytes"
    assert held.add(HeardBatch(3, b"1", None))
    assert not held.add(HeardBatch(4, b"", None)), "batches"
    held.check()
    assert _seqs(held) == [1, 3]


def test_half_of_a_bound_is_a_crowd() -> None:
    by_count, by_bytes = HeldBatches(4, 1000), HeldBatches(100, 1000)
    crowds = []
    for seq in range(3):
        crowds.append((by_count.is_crowded, by_bytes.is_crowded))
        by_count.add(HeardBatch(seq, b"", None))
        by_bytes.add(HeardBatch(seq, bytes(250), None))
    assert crowds == [(False, False), (False, False), (True, True)]


def test_what_is_held_can_be_compared_and_let_go() -> None:
    held = HeldBatches(10, 10_000)
    held.add(heard("3"))
    held.add(heard("4?"))
    assert held.compare(heard("3")) is True
    assert held.compare(heard("3b")) is False
    assert held.compare(heard("4b")) is True, "an unreadable batch proves nothing"
    assert held.compare(heard("5")) is None
    assert [held.is_readable(seq) for seq in (3, 4, 5)] == [True, False, False]
    held.discard(3)
    held.discard(5)
    held.check()
    assert held.clear() == 1
    held.check()
