"""Marks of one bit: in order of age, bounded, and undone exactly."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.aged_marks import AgedMarks
from indexer.block_index import BlockIndex, Ref
from indexer.slot_bits import GPU, OBSERVED
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
    assert len(aged) == 1
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


def test_marks_up_to_a_time_are_cleared_alone() -> None:
    index, aged, refs = marks()
    aged.mark(refs[:3], 1.0)
    aged.mark(refs[2:4], 2.0)
    assert aged.unmark_until(refs, 1.0) == 2
    assert marked(index) == {refs[2], refs[3]}
    aged.check(marked(index))


steps = st.lists(
    st.tuples(
        st.sampled_from(["mark", "note", "restore", "unmark", "forget", "expire"]),
        st.lists(st.integers(0, 6), unique=True, max_size=5),
    ),
    max_size=40,
)


@given(steps, st.integers(2, 8))
def test_marks_are_what_a_list_in_order_of_age_would_be(
    script: Sequence[tuple[str, list[int]]], limit: int
) -> None:
    index, aged, refs = marks(limit)
    expected: list[tuple[float, Ref]] = []
    for at, (step, numbers) in enumerate(script):
        chosen = [refs[i] for i in numbers]
        if step in ("mark", "note"):
            if step == "mark":
                aged.mark(chosen, float(at))
            else:
                index.claim(chosen, 0, OBSERVED)
                aged.note(chosen, float(at))
            expected = [one for one in expected if one[1] not in chosen]
            expected += [(float(at), ref) for ref in reversed(chosen)]
            expected = expected[-limit:]
        elif step == "restore":
            at_first = float(at - 2 * len(chosen))
            unmarked = [ref for ref in chosen if ref not in aged]
            aged.restore(chosen, at_first)
            place = len([one for one in expected if one[0] <= at_first])
            expected[place:place] = [(at_first, ref) for ref in reversed(unmarked)]
            expected = expected[-limit:]
        elif step == "expire":
            aged.expire(at - 3.0)
            expected = [one for one in expected if one[0] >= at - 3.0]
        elif step == "unmark":
            aged.unmark(chosen)
            expected = [one for one in expected if one[1] not in chosen]
        else:
            held = [ref for ref in chosen if ref in aged]
            index.release(held, 0, OBSERVED)
            aged.forget_all(held)
            expected = [one for one in expected if one[1] not in chosen]
        if not index.num_blocks:
            refs = list(index.open(KeySpace("m")).refs([BlockKey(k) for k in range(1, 8)]))
        assert marked(index) == {ref for _, ref in expected}
        aged.check(marked(index))


@pytest.mark.parametrize("how", ["renewed", "taken away", "both"])
def test_runs_that_list_too_much_are_swept(how: str) -> None:
    index = BlockIndex()
    aged = AgedMarks(index, index.take_slot(), OBSERVED, limit=700)
    refs = list(index.open(KeySpace("m")).refs([BlockKey(k) for k in range(1, 1_001)]))
    for at in range(60):
        first = 37 * at % 400 if how != "taken away" else 500 * (at % 2)
        aged.mark(refs[first : first + 500], float(at))
        if how != "renewed":
            gone = [ref for ref in refs[first + 20 : first + 500] if ref in aged]
            index.claim(gone, 0, GPU, OBSERVED)
            for ref in gone:
                aged.forget(ref)
        aged.check(marked(index))
    aged.expire(59.0)
    assert marked(index) == {ref for ref in refs if ref in aged} != set()
    aged.expire(60.0)
    assert (marked(index), len(aged)) == (set(), 0)
    aged.check(set())
