"""What joins the tail of the queue, and what does not."""

from dataclasses import replace
from typing import Any

import pytest

from protocol import AllBlocksCleared, BlockRemoved, BlockStored
from worker.tree import CacheKey, TreeConfig, TreeCore
from worker.tree.recorder import EventRecorder, StoreLabels

GPU = StoreLabels("GPU", block_size=2)


def stored(recorder: EventRecorder) -> list[list[int | bytes]]:
    return [list(e.block_hashes) for e in recorder.take() if isinstance(e, BlockStored)]


def test_a_store_joins_its_parent_at_the_tail_across_nodes() -> None:
    recorder = EventRecorder()
    recorder.store(GPU, None, [1, 2], [10, 11, 12, 13])
    recorder.store(GPU, 2, [3], [14, 15])
    (event,) = recorder.take()
    assert event == BlockStored([1, 2, 3], None, [10, 11, 12, 13, 14, 15], 2, medium="GPU")


@pytest.mark.parametrize(
    "other",
    [
        replace(GPU, medium="CPU_PINNED"),
        replace(GPU, cache_salt="s"),
        replace(GPU, session_id="s"),
        replace(GPU, lora_name="a"),
    ],
)
def test_a_store_with_another_label_stays_apart(other: StoreLabels) -> None:
    recorder = EventRecorder()
    recorder.store(GPU, None, [1], [10, 11])
    recorder.store(other, 1, [2], [12, 13])
    assert stored(recorder) == [[1], [2]]


@pytest.mark.parametrize("parent", [None, 7])
def test_a_store_with_another_parent_stays_apart(parent: int | None) -> None:
    recorder = EventRecorder()
    recorder.store(GPU, None, [1], [10, 11])
    recorder.store(GPU, parent, [2], [12, 13])
    assert stored(recorder) == [[1], [2]]


def test_pairs_join_at_their_common_token() -> None:
    pairs = replace(GPU, is_eagle=True)
    recorder = EventRecorder()
    recorder.store(pairs, None, [1], [10, 11, 12])
    recorder.store(pairs, 1, [2], [12, 13, 14])
    (event,) = recorder.take()
    assert isinstance(event, BlockStored)
    assert list(event.token_ids) == [10, 11, 12, 13, 14]
    assert event.is_eagle


def test_removals_of_one_medium_join_whatever_their_parents() -> None:
    recorder = EventRecorder()
    recorder.remove("GPU", [3, 2])
    recorder.remove("GPU", [9])
    recorder.remove("CPU_PINNED", [4])
    recorder.remove("GPU", [5])
    assert recorder.take() == [
        BlockRemoved([3, 2, 9], "GPU"),
        BlockRemoved([4], "CPU_PINNED"),
        BlockRemoved([5], "GPU"),
    ]


def test_only_the_tail_is_joined_and_kinds_never_mix() -> None:
    recorder = EventRecorder()
    recorder.store(GPU, None, [1], [10, 11])
    recorder.remove("GPU", [9])
    recorder.store(GPU, 1, [2], [12, 13])
    recorder.clear()
    recorder.store(GPU, 2, [3], [14, 15])
    assert [type(event) for event in recorder.take()] == [
        BlockStored, BlockRemoved, BlockStored, AllBlocksCleared, BlockStored,
    ]  # fmt: skip


def test_taking_starts_a_new_queue() -> None:
    recorder = EventRecorder()
    recorder.store(GPU, None, [1], [10, 11])
    assert len(recorder.take()) == 1
    recorder.store(GPU, 1, [2], [12, 13])
    assert stored(recorder) == [[2]]
    assert recorder.take() == []


class Untouchable(list[Any]):
    """Fails when anything looks at it."""

    def __iter__(self) -> None:  # type: ignore[override]
        raise AssertionError("a disabled recorder looked at its arguments")

    __len__ = __getitem__ = __iter__  # type: ignore[assignment]


def test_a_disabled_recorder_returns_at_once() -> None:
    recorder = EventRecorder(is_enabled=False)
    recorder.store(GPU, None, Untouchable(), Untouchable())
    recorder.remove("GPU", Untouchable())
    recorder.clear()
    assert recorder.take() == []


def test_a_core_with_a_disabled_recorder_names_no_page() -> None:
    core = TreeCore(TreeConfig(2, 8, 8, load_back_threshold=0, events_enabled=False))
    node = core.insert(CacheKey((1, 2, 3, 4))).node
    node.event_digests = Untouchable()
    core.acknowledge(core.pending_backups()[0])
    assert core.evict_device(8) == 4
    assert core.load_back(core.match(CacheKey((1, 2, 3, 4)))) is not None
    assert core.take_events() == []
