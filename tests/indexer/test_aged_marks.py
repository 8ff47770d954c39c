"""Marks of one bit: in order of age, bounded, and undone exactly."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.aged_marks import AgedMarks
from indexer.block_index import BlockIndex, Ref
from indexer.slot_bits import FIRST_SLOT, GPU, OBSERVED
from protocol import BlockKey, KeySpace


def marks(limit: int = 4) -> tuple[BlockIndex, AgedMarks, list[Ref]]:
    index = BlockIndex()
    aged = AgedMarks(index, index.take_slot(), OBSERVED, limit)
    return index, aged, list(index.open(KeySpace("m")).refs([BlockKey(k) for k in range(1, 8)]))


def marked(index: BlockIndex) -> set[Ref]:
    return {ref for ref, bits in index.blocks_of(FIRST_SLOT) if bits & OBSERVED}


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
    index.claim(refs[:1], FIRST_SLOT, GPU, OBSERVED)
    aged.forget(refs[0])
    aged.check({refs[1]})
    aged.unmark(refs)
    assert marked(index) == set()
    aged.mark(refs[3:4], 2.0)
    aged.clear()
    index.release(refs[:1], FIRST_SLOT, GPU)
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
                index.claim(chosen, FIRST_SLOT, OBSERVED)
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
            index.release(held, FIRST_SLOT, OBSERVED)
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
            index.claim(gone, FIRST_SLOT, GPU, OBSERVED)
            for ref in gone:
                aged.forget(ref)
        aged.check(marked(index))
    aged.expire(59.0)
    assert marked(index) == {ref for ref in refs if ref in aged} != set()
    aged.expire(60.0)
    assert (marked(index), len(aged)) == (set(), 0)
    aged.check(set())


turns = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(1, 12), st.sampled_from("mnufe")),
    max_size=30,
)


@given(turns, st.integers(6, 40))
def test_conversations_that_grow_are_marked_as_if_anew(
    script: Sequence[tuple[str, int, str]], limit: int
) -> None:
    """Two conversations share their first blocks; each is renewed and grows, and events take marks away."""
    index = BlockIndex()
    aged = AgedMarks(index, index.take_slot(), OBSERVED, limit)
    keys = {"ab": range(1, 5), "a": range(10, 30), "b": range(30, 50)}
    expected: list[tuple[float, Ref]] = []
    for at, (name, length, step) in enumerate(script):
        space = index.open(KeySpace("m"))
        whole = [*keys["ab"], *(keys[name] if name != "ab" else ())][: length + 4]
        chosen = list(space.refs([BlockKey(key) for key in whole]))
        if step in "mn":
            if step == "m":
                aged.mark(chosen, float(at))
            else:
                index.change_prompt(chosen, FIRST_SLOT, OBSERVED, 0)
                aged.note(chosen, float(at))
            expected = [one for one in expected if one[1] not in chosen]
            expected += [(float(at), ref) for ref in reversed(chosen)]
            expected = expected[-limit:]
        elif step == "e":
            aged.expire(at - 4.0)
            expected = [one for one in expected if one[0] >= at - 4.0]
        else:
            gone = [ref for ref in chosen[length // 2 :] if ref in aged]
            if step == "u":
                aged.unmark(gone)
            else:
                index.release(gone, FIRST_SLOT, OBSERVED)
                aged.forget_all(gone)
            expected = [one for one in expected if one[1] not in gone]
        index.drop_unused()
        assert marked(index) == {ref for _, ref in expected}
        aged.check(marked(index))
        runs = {ref: at for at, refs in aged.runs() for ref in refs}
        assert runs == {ref: at for at, ref in expected}


def test_blocks_of_several_prompts_and_key_spaces_are_marked_together() -> None:
    index = BlockIndex()
    aged = AgedMarks(index, index.take_slot(), OBSERVED, limit=60)
    keys = [BlockKey(k) for k in range(1, 41)]
    one = list(index.open(KeySpace("m", adapter="a")).refs(keys))
    other = list(index.open(KeySpace("m", adapter="b")).refs(keys))
    mixed = [ref for pair in zip(one, other, strict=True) for ref in pair]
    aged.mark_any([*mixed[:20], *mixed[10:30]], 1.0)
    assert marked(index) == set(mixed[:30])
    aged.mark_any(mixed[25:80], 2.0)
    aged.check(marked(index))
    assert len(aged) == 60
    assert marked(index) >= set(mixed[25:80])
    aged.mark(one[:10], 3.0)
    aged.expire(2.5)
    assert marked(index) == set(one[:10])
    aged.check(marked(index))
    aged.clear()
    index.drop_unused()
    assert index.num_spaces == 0
    index.check()


def test_a_conversation_that_grows_is_one_run() -> None:
    index = BlockIndex()
    aged = AgedMarks(index, index.take_slot(), OBSERVED, limit=10_000)
    refs = list(index.open(KeySpace("m")).refs([BlockKey(k) for k in range(1, 1_001)]))
    for turn in range(1, 11):
        aged.mark(refs[: 100 * turn], float(turn))
        other = list(index.open(KeySpace("m")).refs([BlockKey(5_000 + turn)]))
        aged.mark(refs[:10] + other, turn + 0.5)  # takes over what both begin with
    assert [len(found) for _, found in aged.runs()][-2:] == [990, 11]
    aged.check(marked(index))
