"""Whose block is it? Adapters and salts, whether the engine's hashes tell them apart or not; images."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.identity import ClaimSkip
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import EngineHash, EngineKind, Tier
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank, worker_spec

A = names(0, 6)
TOKENS = blocks(0, 6)
SPACES: list[dict[str, Any]] = [
    {},
    {"salt": "s"},
    {"salt": "t"},
    {"adapter": "ad"},
    {"adapter": "other"},
    {"adapter": "ad", "salt": "s"},
]


def fields_of(space: dict[str, Any], form: str) -> dict[str, Any]:
    """How an engine names a namespace in the store of a prompt's first block."""
    adapter, salt = space.get("adapter"), space.get("salt")
    if form == "fields":
        return {"lora_name": adapter, "cache_salt": salt}
    listed = [name for name in (adapter, salt) if name is not None]
    return {"lora_name": adapter, "extra_keys": [listed or None]}


@pytest.mark.parametrize("form", ["fields", "extra keys"])
@pytest.mark.parametrize("second", SPACES)
@pytest.mark.parametrize("first", SPACES)
def test_a_hash_of_two_namespaces_is_a_block_in_each(
    first: dict[str, Any], second: dict[str, Any], form: str
) -> None:
    fleet = SmallFleet("w")
    for space in (first, second):
        fleet.store("w", A[:1], TOKENS[:4], **fields_of(space, form))
    for space in SPACES:
        expected = int(space in (first, second))
        assert fleet.run("w", prompt(TOKENS, **space)) == (expected, 0, 0), space
    fleet.remove("w", A[:1])
    assert fleet.index.stats().blocks == 0


@pytest.mark.parametrize("then", ["removed", "cleared"])
def test_a_hash_that_named_another_namespace_before_names_its_own(then: str) -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A[:1], TOKENS[:4], cache_salt="s")
    if then == "removed":
        fleet.remove("w", A[:1])
    else:
        fleet.clear("w")
    fleet.store("w", A[:1], TOKENS[:4], medium="CPU")
    assert fleet.run("w", prompt(TOKENS)) == (0, 1, 0)
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (0, 0, 0)


@pytest.mark.parametrize(
    "fields", [{"cache_salt": ""}, {"lora_name": ""}, {"lora_name": "", "cache_salt": ""}]
)
def test_an_empty_name_is_none(fields: dict[str, Any]) -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A[:2], TOKENS[:8], **fields)
    assert fleet.run("w", prompt(TOKENS)) == (2, 0, 0)


def test_blocks_that_share_a_hash_are_bounded() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(namesakes=1))
    for salt in [None, *(f"s{i}" for i in range(20))]:
        fleet.store("w", A[:2], TOKENS[:8], cache_salt=salt)
    state = fleet.state("w")
    assert state.skips[ClaimSkip.NAMESAKE] == 12 + 20  # of the first hash, and of the second
    assert fleet.run("w", prompt(TOKENS)) == (2, 0, 0)
    assert [fleet.run("w", prompt(TOKENS, salt=f"s{i}"))[0] for i in (0, 7, 8)] == [1, 1, 0]
    fleet.wait(1.0)


def test_doubt_about_blocks_that_share_a_hash_ends() -> None:
    fleet = SmallFleet("w")
    for salt in (None, "s"):
        fleet.store("w", A[:2], TOKENS[:8], cache_salt=salt)
    fleet.index.record_loss(rank("w"), fleet.now)
    assert fleet.state("w").doubtful == 4
    fleet.wait(601.0)
    assert (fleet.state("w").doubtful, fleet.index.stats().blocks) == (0, 0)


# Any order of events, against the truth


@dataclass
class Truth:
    """What a rank holds by event, said plainly: by tier and hash the blocks that it names."""

    held: dict[Tier, dict[EngineHash, set[tuple[int, int]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def run(self, space: int) -> tuple[int, int, int]:
        """A prompt of two blocks: GPU, HOST, STORAGE blocks of the match."""
        counts = [0, 0, 0]
        for block in (0, 1):
            tiers = [
                tier
                for tier in Tier
                if any((space, block) in blocks for blocks in self.held[tier].values())
            ]
            if not tiers:
                break
            counts[min(tiers)] += 1
        return counts[0], counts[1], counts[2]


MEDIA = {Tier.GPU: "GPU", Tier.HOST: "CPU_PINNED", Tier.STORAGE: "DISK"}
NAMED: list[tuple[str | None, str | None]] = [(None, None), ("ad", "s"), ("ad", "t"), ("x", "s")]
step = st.tuples(
    st.sampled_from(["store", "store", "store", "remove", "clear"]),
    st.sampled_from(list(Tier)),
    st.integers(0, 3),  # namespace
    st.integers(0, 1),  # block
)


@given(st.lists(step, max_size=25), st.integers(1, 3))
@settings(max_examples=100)
def test_namespaces_against_the_truth(
    steps: list[tuple[str, Tier, int, int]], num_hashes: int
) -> None:
    """Hashes tell some namespaces apart and give others one name; events name their namespace."""
    fleet, truth = SmallFleet("w"), Truth()
    for verb, tier, space, block in steps:
        hashes = names(10 * (1 + (space - 1) % num_hashes if space else 0), 2)
        held, medium = truth.held[tier], MEDIA[tier]
        match verb:
            case "store" if block and not any(hashes[0] in one for one in truth.held.values()):
                continue
            case "store":
                adapter, salt = NAMED[space]
                tokens = TOKENS[SIZE * block : SIZE * (block + 1)]
                parent = hashes[0] if block else None
                named = {"lora_name": adapter, "cache_salt": salt}
                fleet.store("w", hashes[block : block + 1], tokens, parent, medium, **named)
                held.setdefault(hashes[block], set()).add((space, block))
            case "remove":
                fleet.remove("w", hashes[block : block + 1], medium)
                held.pop(hashes[block], None)
            case _:
                fleet.clear("w", medium)
                held.clear()
        for each, (adapter, salt) in enumerate(NAMED):
            asked = prompt(TOKENS[:8], adapter=adapter, salt=salt)
            assert fleet.run("w", asked) == truth.run(each)


def test_what_an_engine_offloads_without_its_keys_starts_no_prompt() -> None:
    """vLLM leaves the salt out of its stores on host; the GPU store that named it was before we joined."""
    specs = [worker_spec(name, engine=EngineKind.VLLM) for name in ("w", "other")]
    fleet = SmallFleet(*specs, trust=Trust.JOINED)
    fleet.store("other", names(50, 1), blocks(50, 1), extra_keys=[["s"]])
    fleet.store("w", A[:1], TOKENS[:4], medium="CPU")
    assert fleet.run("w", prompt(TOKENS)) == (0, 0, 0)
    fleet.store("w", A[:1], TOKENS[:4], extra_keys=[["s"]])
    fleet.remove("w", A[:1])
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (0, 1, 0)
    assert fleet.run("w", prompt(TOKENS)) == (0, 0, 0)


@pytest.mark.parametrize("engine", list(EngineKind))
@pytest.mark.parametrize(
    ("medium", "expected"), [("CPU", (0, 6, 0)), ("CPU_PINNED", (0, 6, 0)), ("OBJ", (0, 0, 6))]
)
def test_offloaded_blocks_with_tokens_need_no_gpu_store_where_no_salt_is_used(
    engine: EngineKind, medium: str, expected: tuple[int, int, int]
) -> None:
    """A chain that was only ever announced on a lower tier is that tier's, whichever engine says so."""
    fleet = SmallFleet(worker_spec("w", engine=engine))
    fleet.store("w", A, TOKENS, medium=medium)
    assert fleet.run("w", prompt(TOKENS)) == expected
    fleet.remove("w", A, medium=medium)
    assert fleet.run("w", prompt(TOKENS)) == (0, 0, 0)
