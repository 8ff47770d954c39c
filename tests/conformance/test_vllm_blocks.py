"""The block pool does what vLLM's did: every recorded step, event for event, in order.

Of each recording its requests are known from its HTTP lines, or from what its events say of them. What is left out, and
why, is named in ``docs/explanation/block-pool.md``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    KvEvent,
    decode_batch,
    parse_live,
)
from tests.conformance.block_replay import Action, Asked, Reset, block_replay
from tests.recordings import frames_of, json_lines, vllm_recordings
from worker.blocks import BlockConfig

Batches = list[list[KvEvent]]


@dataclass(frozen=True)
class Replayed:
    """How a recording is replayed.

    Attributes:
        actions: from its lines by phase.
        without: phases whose events are not compared.
        until: phase before which the comparison ends.
    """

    blocks: BlockConfig
    actions: Callable[[Sequence[dict[str, Any]]], list[Action]]
    without: frozenset[str] = frozenset()
    until: str | None = None


def asked(line: dict[str, Any]) -> Asked:
    """A request with its HTTP line."""
    request, response = line["request"], line["response"]
    (choice,) = response["choices"]
    prompt = request.get("prompt") or response["prompt_token_ids"]
    model = request.get("model")
    return Asked(
        tuple(prompt),
        response["usage"]["completion_tokens"],
        tuple(choice.get("token_ids") or ()),
        adapter=model if model in ("ad1", "ad2") else None,
        salt=request.get("cache_salt"),
    )


def in_order(lines: Sequence[dict[str, Any]]) -> list[Action]:
    """Every line's request, and a reset where the phase says so."""
    actions: list[Action] = []
    for line in lines:
        if line["kind"] == "http":
            actions += [Reset()] if line["phase"] == "after_reset" else []
            actions.append(asked(line))
    return actions


def of_rank(dp_rank: int) -> Callable[[Sequence[dict[str, Any]]], list[Action]]:
    """Requests that one of two ranks served: the one named; or the one that had the prompt or announced it."""

    def served(lines: Sequence[dict[str, Any]]) -> list[Action]:
        actions: list[Action] = []
        for line in lines:
            if line["kind"] == "http":
                named = line["req_headers"].get("X-data-parallel-rank")
                rank = int(named) if named else int(line["phase"] == "auto_b")
                actions += [asked(line)] if rank == dp_rank else []
        return actions

    return served


def ramp(first: int, length: int, max_tokens: int, *, is_late: bool = False) -> Asked:
    """A prompt of consecutive token ids."""
    return Asked(tuple(range(first, first + length)), max_tokens, is_late=is_late)


def small_evict(lines: Sequence[dict[str, Any]]) -> list[Action]:
    """Five requests of 90 and 200 tokens outgrow 24 blocks; a sixth and one of 100 and 300 come after them."""
    *first, after = [asked(line) for line in lines if line["kind"] == "http"]
    outgrown = [
        ramp(2100, 90, 200),
        ramp(2200, 90, 200, is_late=True),
        *(ramp(2000 + 100 * i, 90, 200) for i in (0, 3, 4)),
    ]
    return [*first, outgrown, ramp(2500, 90, 200), ramp(7, 100, 300), *[Reset()] * 5,
            ramp(1, 3, 2), after]  # fmt: skip


def duplicates(_lines: Sequence[dict[str, Any]]) -> list[Action]:
    """One prompt twice at a time, room made of it, and a prompt that ends with a block twice."""
    return [
        Reset(),
        [ramp(300, 100, 2), ramp(300, 100, 2)],
        ramp(1000, 400, 2),
        ramp(1500, 300, 2),
        ramp(300, 100, 2),
        ramp(2500, 200, 1),
        ramp(3000, 64, 1),
        ramp(3000, 64, 1),
    ]


def offload(lines: Sequence[dict[str, Any]]) -> list[Action]:
    """Requests of the lines; those of ``fillx`` are 900 tokens, of which the events tell all but four."""
    actions: list[Action] = []
    for line in lines:
        if line["kind"] == "http":
            actions += [Reset(), Reset()] if line["phase"] == "after_reset" else []
            actions.append(asked(line))
        elif line["kind"] == "pub" and line["phase"] == "fillx":
            for event in events_of(line):
                if isinstance(event, BlockStored) and event.medium == "GPU":
                    actions.append(Asked((*event.token_ids, 1, 2, 3, 4), 2))
    return actions


SMALL = BlockConfig(32, 24 * 32)
REPLAYED = {
    "chatml_basic": Replayed(BlockConfig(128, 100 * 128), in_order),
    "lora": Replayed(BlockConfig(32, 100 * 32, adapters=("ad1", "ad2")), in_order),
    "dp2_rank0": Replayed(BlockConfig(32, 100 * 32), of_rank(0)),
    "dp2_rank1": Replayed(BlockConfig(32, 100 * 32), of_rank(1)),
    "llama3_small_evict": Replayed(SMALL, small_evict, without=frozenset({"report_full_A3"})),
    "llama3_duplicates": Replayed(SMALL, duplicates, until="prompt_logprobs"),
    "cpu_offload_selfdesc": Replayed(
        BlockConfig(32, 39 * 32, offload_tokens=91 * 32, is_self_describing=True), offload
    ),
}


def events_of(line: dict[str, Any]) -> list[KvEvent]:
    """Events of a recorded message."""
    return list(decode_batch(parse_live(frames_of(line)).payload).events)


def recorded_batches(lines: Sequence[dict[str, Any]], how: Replayed) -> Batches:
    """What is compared."""
    batches: Batches = []
    for line in lines:
        if line["phase"] == how.until:
            break
        if line["kind"] == "pub" and line["phase"] not in how.without:
            batches.append(events_of(line))
    return batches


def replayed(name: str, golden: Path) -> tuple[Batches, Batches, list[int], list[int]]:
    """Batches of ours and theirs, and tokens that requests with a line found cached, likewise."""
    path = golden / "vllm" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("no such recording")
    how, lines = REPLAYED[name], list(json_lines(path))
    actions = how.actions(lines)
    replay = block_replay(how.blocks, actions)
    return replay.batches, recorded_batches(lines, how), replay.cached, cached_of(lines)


def cached_of(lines: Sequence[dict[str, Any]]) -> list[int]:
    """Cached tokens as the real engine reported them, request by request."""
    usages = [line["response"]["usage"] for line in lines if line["kind"] == "http"]
    return [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]


SAME_HASHES = ["chatml_basic", "dp2_rank0", "dp2_rank1", "llama3_small_evict", "llama3_duplicates"]


@pytest.mark.parametrize("name", SAME_HASHES)
def test_steps_are_announced_as_recorded(name: str, golden: Path) -> None:
    ours, theirs, _, _ = replayed(name, golden)
    assert ours == theirs


def test_adapters_are_announced_as_recorded_but_for_their_hashes(golden: Path) -> None:
    ours, theirs, cached, reported = replayed("lora", golden)
    assert renamed(ours) == renamed(theirs)
    assert cached == reported == [0, 0, 0, 0, 64]


def test_hits_are_told_as_recorded(golden: Path) -> None:
    _, _, cached, reported = replayed("chatml_basic", golden)
    assert cached == reported


def test_offload_is_announced_as_recorded(golden: Path) -> None:
    """All in its order but the stores of a step's copies, which have none. A load from CPU is a step of its own in
    the real engine; here it is part of the prefill's, so that phases are compared and not steps."""
    ours, theirs, cached, reported = replayed("cpu_offload_selfdesc", golden)
    for place in (is_of_gpu, is_removed_from_cpu):
        assert list(filter(place, flat(ours))) == list(filter(place, flat(theirs)))
    assert [stored_on_cpu(batch) for batch in ours if stored_on_cpu(batch)] == [
        stored_on_cpu(batch) for batch in theirs if stored_on_cpu(batch)
    ]
    (merged,) = [at for at, batch in enumerate(ours) if loads(batch)]
    assert list(map(len, ours[:merged])) == list(map(len, theirs[:merged]))
    assert ours[merged] == [*theirs[merged], *theirs[merged + 1]]
    assert list(map(len, ours[merged + 1 :])) == list(map(len, theirs[merged + 2 :]))
    assert set(reported) == {0, 192}
    assert cached.count(192) == 1


def test_the_docs_say_of_every_recording_whether_it_agrees() -> None:
    """Of those in the repository: what somebody else records of an engine need not be there."""
    root = Path(__file__).parents[2]
    page = (root / "docs/explanation/block-pool.md").read_text()
    for path in vllm_recordings(root / "tests/data"):
        assert f"`{path.stem}`" in page


def is_of_gpu(event: KvEvent) -> bool:
    return isinstance(event, AllBlocksCleared) or event.medium == "GPU"


def is_removed_from_cpu(event: KvEvent) -> bool:
    return isinstance(event, BlockRemoved) and event.medium == "CPU"


def stored_on_cpu(batch: Sequence[KvEvent]) -> list[BlockStored]:
    """In the order of their tokens."""
    stored = [e for e in batch if isinstance(e, BlockStored) and e.medium == "CPU"]
    return sorted(stored, key=lambda event: list(event.token_ids))


def loads(batch: Sequence[KvEvent]) -> bool:
    """Whether blocks go and come and go again: a load, then the prompt's last block."""
    kinds = [type(event) for event in batch if event.medium == "GPU"]
    return kinds[-2:] == [BlockStored, BlockRemoved]


def flat(batches: Batches) -> Iterator[KvEvent]:
    for batch in batches:
        yield from batch


def renamed(batches: Batches) -> Batches:
    """Hashes by the order of their first appearance."""
    names: dict[EngineHash, int] = {}

    def name(engine_hash: EngineHash) -> int:
        return names.setdefault(engine_hash, len(names))

    def rename(event: KvEvent) -> KvEvent:
        match event:
            case BlockStored(block_hashes=hashes, parent_hash=parent):
                parent = None if parent is None else name(parent)
                return replace(event, block_hashes=[*map(name, hashes)], parent_hash=parent)
            case BlockRemoved(block_hashes=hashes):
                return replace(event, block_hashes=[*map(name, hashes)])
            case AllBlocksCleared():
                return event

    return [[rename(event) for event in batch] for batch in batches]
