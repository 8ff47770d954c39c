"""Marks of one bit: in order of age, bounded, and undone exactly."""

from indexer.aged_marks import AgedMarks
from indexer.block_index import GPU, OBSERVED, BlockIndex, Ref
from protocol import BlockKey, KeySpace


def marks(limit: int = 4) -> tuple[BlockIndex, AgedMarks, list[Ref]]:
    index = BlockIndex()
    aged = AgedMarks(index, index.take_slot(), OBSERVED, limit)
    return index, aged, list(index.open(KeySpace("m")).refs([BlockKey(k) for k in range(1, 8)]))


def marked(index: BlockIndex) -> set[Ref]:
    return {ref for ref, bits in index.blocks_of(0) if bits & OBSERVED}


def test_marks_expire_in_order_of_their_last_renewal() -> None:
    index, aged, refs = marks()
    aged.mark(refs[:3], 1.0)
    aged.mark(refs[:1], 2.0)
    aged.expire(1.5)
    assert marked(index) == {refs[0]}
    assert (len(aged), aged.num_expired) == (1, 2)
    aged.expire(2.0)
    assert refs[0] in aged
    aged.check({refs[0]})


def test_a_prefix_remains_at_the_bound() -> None:
    index, aged, refs = marks(limit=3)
    aged.mark(refs[:5], 1.0)
    assert marked(index) == set(refs[:3])
    assert aged.num_dropped == 2
    aged.check(marked(index))


def test_an_event_takes_a_mark_away() -> None:
    index, aged, refs = marks()
    aged.mark(refs[:2], 1.0)
    index.claim(refs[:1], 0, GPU, OBSERVED)
    aged.forget(refs[0])
    aged.check({refs[1]})
    aged.unmark(refs)
    assert marked(index) == set()
    aged.mark(refs[3:4], 2.0)
    aged.clear()
    index.release(refs[:1], 0, GPU)
    index.drop_unused()
    index.check()
    assert index.num_blocks == 0
