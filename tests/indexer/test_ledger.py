"""Stores, removals and clears of one rank: tiers, orphans, groups, placeholders, namespaces."""

from typing import Any

import pytest

from indexer.identity import ClaimSkip
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EventBatch, KvEvent, Tier
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank, worker_spec

A = names(0, 6)
B = names(100, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet("w", "cold")


# Set operations


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_one_removal_undoes_any_number_of_stores(fleet: SmallFleet, repeats: int) -> None:
    for _ in range(repeats):
        fleet.store("w", A[:2], TOKENS[:8])
        fleet.store("w", A[:2], TOKENS[:8], medium="CPU")
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (0, 2, 0)
    state = fleet.state("w")
    assert state.duplicates.get(Tier.GPU, 0) == state.duplicates.get(Tier.HOST, 0)
    assert state.duplicates.get(Tier.GPU, 0) == 2 * (repeats - 1)


def test_a_removal_of_the_unknown_is_counted_by_tier(fleet: SmallFleet) -> None:
    fleet.remove("w", A[:2])
    fleet.remove("w", A[:1], "CPU_PINNED")
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.remove("w", A[:1])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {Tier.GPU: 2, Tier.HOST: 1}


def test_one_batch_may_remove_and_store_the_same_block(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4])
    store = BlockStored(A[:1], None, TOKENS[:4], 4, "GPU")
    fleet.apply("w", BlockRemoved(A[:1], "GPU"), store)
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    fleet.apply("w", store, BlockRemoved(A[:1], "GPU"))
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0


def test_eviction_from_gpu_leaves_the_host_copy(fleet: SmallFleet) -> None:
    fleet.store("w", A[:4], TOKENS[:16])
    fleet.store("w", A[:4], TOKENS[:16], medium="CPU_PINNED")
    fleet.remove("w", A[2:4])
    assert fleet.run("w", PROMPT) == (2, 2, 0)
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (0, 4, 0)
    fleet.remove("w", A[:4], "CPU_PINNED")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0


def test_a_tier_hole_is_bridged_by_any_tier_and_never_skipped(fleet: SmallFleet) -> None:
    fleet.store("w", A, TOKENS)
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0], medium="CPU")
    fleet.store("w", A[2:4], TOKENS[8:16], parent=A[1], medium="DISK")
    fleet.remove("w", A[1:4])
    assert fleet.run("w", PROMPT) == (3, 2, 1)
    fleet.remove("w", A[3:4], "DISK")
    assert fleet.run("w", PROMPT) == (1, 2, 0)


def test_a_mid_chain_block_stored_again_makes_its_descendants_count(fleet: SmallFleet) -> None:
    fleet.store("w", A, TOKENS)
    fleet.remove("w", A[2:3])
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.run("w", PROMPT) == (6, 0, 0)


def test_a_child_may_follow_a_parent_on_another_tier(fleet: SmallFleet) -> None:
    fleet.store("w", A[:2], TOKENS[:8], medium="CPU_PINNED")
    fleet.store("w", A[2:4], TOKENS[8:16], parent=A[1])
    assert fleet.run("w", PROMPT) == (2, 2, 0)


@pytest.mark.parametrize("order", ["store first", "remove first"])
def test_demotion_converges_in_either_order(fleet: SmallFleet, order: str) -> None:
    """SGLang's unified core stores on host and then removes from GPU; its predecessor the reverse."""
    fleet.store("w", A[:3], TOKENS[:12])
    events: list[KvEvent] = [
        BlockStored(A[:3], None, TOKENS[:12], 4, "CPU_PINNED"),
        BlockRemoved(A[:3], "GPU"),
    ]
    for event in events if order == "store first" else events[::-1]:
        fleet.apply("w", event)
    assert fleet.run("w", PROMPT) == (0, 3, 0)


def test_credit_is_for_the_longest_prefix_not_for_any_fragment(fleet: SmallFleet) -> None:
    second = TOKENS[12:]
    fleet.store("w", names(50, 3), second)
    fleet.store("cold", A[:3], TOKENS[:12])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.run("cold", PROMPT) == (3, 0, 0)


def test_removing_everything_leaves_nothing(fleet: SmallFleet) -> None:
    for worker in ("w", "cold"):
        fleet.store(worker, A, TOKENS)
        fleet.store(worker, B, blocks(900, 6), cache_salt="s")
    for worker in ("w", "cold"):
        fleet.remove(worker, [*A, *B])
    stats = fleet.index.stats()
    assert (stats.blocks, stats.key_spaces) == (0, 0)


# Media


@pytest.mark.parametrize(
    ("medium", "run"),
    [
        (None, (1, 0, 0)),
        ("GPU", (1, 0, 0)),
        ("gpu", (1, 0, 0)),
        ("CPU", (0, 1, 0)),
        ("cpu_pinned", (0, 1, 0)),
        ("CPU_TIER1", (0, 1, 0)),
        ("CPU_TIER2", (0, 1, 0)),
        ("DISK", (0, 0, 1)),
        ("EXTERNAL", (0, 0, 1)),
        ("FS", (0, 0, 1)),
        ("OBJ", (0, 0, 1)),
        ("STORAGE", (0, 0, 1)),
        ("ETHER", (0, 0, 0)),
    ],
)
def test_media(fleet: SmallFleet, medium: str | None, run: tuple[int, int, int]) -> None:
    fleet.store("w", A[:1], TOKENS[:4], medium=medium)
    assert fleet.run("w", PROMPT) == run
    unknown = fleet.state("w").skips.get(ClaimSkip.UNKNOWN_MEDIUM, 0)
    assert unknown == (sum(run) == 0)
    fleet.remove("w", A[:1], medium)
    assert fleet.run("w", PROMPT) == (0, 0, 0)


def test_a_removal_from_an_unknown_medium_removes_nothing(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.remove("w", A[:1], "ETHER")
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_remote_copies_are_not_the_workers_own(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4], medium="STORAGE", locality="REMOTE")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    fleet.store("w", A[:1], TOKENS[:4], medium="STORAGE", locality="LOCAL")
    fleet.apply("w", BlockRemoved(A[:1], "STORAGE", locality="REMOTE"))
    assert fleet.run("w", PROMPT) == (0, 0, 1)
    assert fleet.state("w").skips[ClaimSkip.REMOTE] == 2


@pytest.mark.parametrize(
    ("medium", "run"),
    [
        (None, (0, 0, 0)),
        ("GPU", (0, 2, 0)),
        ("CPU", (2, 0, 0)),
        ("DISK", (2, 0, 0)),
        ("ETHER", (2, 0, 0)),
    ],
)
def test_clears(fleet: SmallFleet, medium: str | None, run: tuple[int, int, int]) -> None:
    for tier in ("GPU", "CPU", "DISK"):
        fleet.store("w", A[:2], TOKENS[:8], medium=tier)
        fleet.store("cold", A[:2], TOKENS[:8], medium=tier)
    fleet.clear("w", medium)
    assert fleet.run("w", PROMPT) == run
    assert fleet.run("cold", PROMPT) == (2, 0, 0)


def test_a_clear_storm_changes_nothing_else(fleet: SmallFleet) -> None:
    for _ in range(50):
        fleet.clear("w")
    fleet.store("w", A[:2], TOKENS[:8])
    assert fleet.run("w", PROMPT) == (2, 0, 0)


# Orphans


def test_orphans_wait_for_their_parent_and_never_start_a_prompt(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.state("w").orphans == 2
    for tokens in (TOKENS[:12], TOKENS[4:8], TOKENS[4:12]):
        assert fleet.run("w", prompt(tokens)) == (0, 0, 0)
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (3, 0, 0)
    assert fleet.run("w", prompt(TOKENS[4:12])) == (0, 0, 0)
    assert fleet.state("w").orphans == 0


def test_orphans_are_adopted_by_a_parent_on_another_tier(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0])
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[0], medium="CPU")
    fleet.store("w", A[:1], TOKENS[:4], medium="CPU")
    assert fleet.run("w", PROMPT) == (2, 1, 0)
    fleet.remove("w", A[1:3])
    assert fleet.run("w", PROMPT) == (0, 3, 0)


def test_orphans_removed_before_their_parent_comes_do_not_count(fleet: SmallFleet) -> None:
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    fleet.remove("w", A[1:2])
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    assert fleet.run("w", PROMPT) == (3, 0, 0)


def test_children_before_parents_in_one_batch(fleet: SmallFleet) -> None:
    """vLLM's offload connector publishes a chain in any order."""
    order = [3, 1, 5, 0, 4, 2]
    events = [
        BlockStored(A[i : i + 1], A[i - 1] if i else None, TOKENS[4 * i : 4 * i + 4], 4, "CPU")
        for i in order
    ]
    fleet.apply("w", *events)
    assert fleet.run("w", PROMPT) == (0, 6, 0)
    assert fleet.state("w").orphans == 0


def test_parked_blocks_are_bounded_and_the_oldest_go() -> None:
    fleet = SmallFleet("w")
    limit = 8_192
    per_event = 512
    for i in range(limit // per_event + 2):
        first = 1_000_000 + i * per_event
        fleet.store("w", names(first, per_event), blocks(0, per_event), parent=f"p{i}".encode())
    state = fleet.state("w")
    assert state.orphans == limit
    assert state.skips[ClaimSkip.ORPHAN_DROPPED] == 2 * per_event
    fleet.store("w", [b"p0"], TOKENS[:4])
    fleet.store("w", [b"p17"], TOKENS[:4])
    assert fleet.state("w").orphans == limit - per_event


@pytest.mark.parametrize("medium", ["GPU", "CPU"])
def test_a_block_is_not_its_own_parent(fleet: SmallFleet, medium: str) -> None:
    fleet.store("w", A[:1], TOKENS[:4], parent=A[0], medium=medium)
    fleet.store("w", A[1:3], TOKENS[4:12], parent=A[2], medium=medium)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").skips[ClaimSkip.SELF_PARENT] == 3
    fleet.remove("w", A[:3], medium)
    assert fleet.state("w").unknown_removals == {}


def test_a_cycle_of_parents_is_rejected(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], TOKENS[:4], parent=A[2])
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0])
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1])
    assert fleet.state("w").skips[ClaimSkip.PARENT_CYCLE] == 1
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").orphans == 2


# Stores without tokens


def test_a_store_without_tokens_names_a_block_announced_before(fleet: SmallFleet) -> None:
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.store("w", A[1:2], [], medium="CPU")
    fleet.remove("w", A[1:2])
    assert fleet.run("w", PROMPT) == (2, 1, 0)


def test_it_names_a_block_that_left_a_moment_ago(fleet: SmallFleet) -> None:
    """GPU events of a step are published before the offload events of the same step."""
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.remove("w", A[2:3])
    fleet.store("w", A[2:3], [], medium="CPU")
    assert fleet.run("w", PROMPT) == (2, 1, 0)


def test_a_store_without_tokens_of_an_unknown_hash_waits_for_a_name(fleet: SmallFleet) -> None:
    fleet.store("w", A[:1], [], medium="CPU")
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    state = fleet.state("w")
    assert (state.unnamed, state.skips[ClaimSkip.UNRESOLVED]) == (1, 1)
    fleet.store("w", A[:1], TOKENS[:4])
    fleet.remove("w", A[:1])
    assert fleet.run("w", PROMPT) == (0, 1, 0)
    fleet.remove("w", A[:1], "CPU")
    assert fleet.state("w").unknown_removals == {}


def test_unresolved_hashes_are_bounded(fleet: SmallFleet) -> None:
    fleet.store("w", names(10_000, 9_000), [], medium="CPU")
    state = fleet.state("w")
    assert (state.unnamed, state.skips[ClaimSkip.UNRESOLVED_FULL]) == (8_192, 808)
    fleet.remove("w", names(10_000, 9_000), "CPU")
    assert fleet.findings() == {}
    assert fleet.state("w").unnamed == 0


def test_offload_events_without_extra_keys_keep_the_identity_of_the_hash(fleet: SmallFleet) -> None:
    """vLLM's self-describing offload events carry tokens, but neither salt nor images."""
    salted = [["s"], None]
    fleet.store("w", A[:2], TOKENS[:8], extra_keys=salted)
    fleet.store("w", A[:2], TOKENS[:8], medium="CPU")
    fleet.store("w", B[:1], TOKENS[:4], medium="CPU")  # never heard of: could be anybody's
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (2, 0, 0)
    fleet.remove("w", A[:2])
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (0, 2, 0)


# Cache groups


def group_events(order: int) -> list[BlockStored]:
    tokens = list(range(240))
    full = names(0, 5)
    events = [
        BlockStored([full[4]], None, tokens, 240, "GPU", group_idx=0, spec_kind="mamba"),
        BlockStored([full[4]], None, tokens, 240, "GPU", group_idx=1, spec_kind="mamba"),
        BlockStored(full[3:], None, tokens, 48, "GPU", group_idx=2, spec_kind="sliding_window"),
        BlockStored(full, None, tokens, 48, "GPU", group_idx=3, spec_kind="full_attention"),
    ]
    return events[::order]


@pytest.mark.parametrize("order", [1, -1])
def test_full_attention_groups_alone_make_claims(fleet: SmallFleet, order: int) -> None:
    fleet.apply("w", *group_events(order))
    request = prompt(range(240))
    assert fleet.run("w", request) == (5, 0, 0)
    for sparse in (0, 1, 2):
        fleet.remove("w", names(0, 5), group_idx=sparse)
        fleet.remove("w", names(0, 5), "CPU", group_idx=sparse)
    assert fleet.run("w", request) == (5, 0, 0)
    assert fleet.state("w").unknown_removals == {}
    assert fleet.findings().keys() == {"block_size_disagrees"}
    fleet.remove("w", names(0, 5)[:1], group_idx=3)
    assert fleet.run("w", request) == (0, 0, 0)


def test_two_full_groups_hold_a_block_until_both_drop_it(fleet: SmallFleet) -> None:
    for group in (0, 1):
        fleet.store("w", A[:2], TOKENS[:8], group_idx=group, spec_kind="full_attention")
    fleet.remove("w", A[:2], group_idx=0)
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    fleet.remove("w", A[:2], group_idx=1)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {}


def test_a_removal_without_a_group_speaks_of_all(fleet: SmallFleet) -> None:
    for group in (0, 1):
        fleet.store("w", A[:2], TOKENS[:8], group_idx=group)
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").unknown_removals == {}


def test_an_unknown_kind_of_group_is_not_credited(fleet: SmallFleet) -> None:
    fleet.store("w", A[:2], TOKENS[:8], group_idx=0, spec_kind="telepathy")
    fleet.store("w", A[:2], TOKENS[:8], group_idx=0)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.state("w").skips[ClaimSkip.UNKNOWN_GROUP_KIND] == 1


def test_the_number_of_groups_is_bounded(fleet: SmallFleet) -> None:
    for group in range(40):
        fleet.store("w", A[:1], TOKENS[:4], group_idx=group)
    assert fleet.state("w").blocks[Tier.GPU] == 16
    assert fleet.state("w").skips[ClaimSkip.TOO_MANY_GROUPS] == 24


# Identity


def test_namespaces_never_share_credit(fleet: SmallFleet) -> None:
    spaces: list[dict[str, Any]] = [
        {},
        {"cache_salt": "s"},
        {"lora_name": "ad"},
        {"lora_name": "ad", "cache_salt": "s"},
        {"lora_id": 3},
    ]
    for i, fields in enumerate(spaces):
        fleet.store("w", names(10 * i, i + 1), blocks(0, i + 1), **fields)
    for adapter, salt, expected in [
        (None, None, 1), (None, "s", 2), ("ad", None, 3), ("ad", "s", 4), (None, "t", 0), ("3", None, 0)
    ]:  # fmt: skip
        assert fleet.run("w", prompt(TOKENS, adapter=adapter, salt=salt))[0] == expected


def test_later_blocks_inherit_the_namespace_of_their_parent(fleet: SmallFleet) -> None:
    """vLLM names the salt in a prompt's first block alone."""
    fleet.store("w", A[2:3], TOKENS[8:12], parent=A[1], extra_keys=[None])
    fleet.store("w", A[:1], TOKENS[:4], extra_keys=[["s"]])
    fleet.store("w", A[1:2], TOKENS[4:8], parent=A[0], extra_keys=[None])
    assert fleet.run("w", prompt(TOKENS, salt="s")) == (3, 0, 0)
    assert fleet.run("w", PROMPT) == (0, 0, 0)


def test_an_image_changes_credit_from_its_first_block_on(fleet: SmallFleet) -> None:
    """Placeholders have equal tokens. Without the image's identity the credit stops before it."""
    for name, hashes in (("cat", A[1:3]), ("dog", B[1:3])):
        fleet.store("w", A[:1], TOKENS[:4], extra_keys=[None])
        keys = [[[name, 0]], [[name, -2]]]
        fleet.store("w", hashes, TOKENS[4:12], parent=A[0], extra_keys=keys)
    fleet.store("w", A[3:4], TOKENS[12:16], parent=A[2], extra_keys=[None])
    assert fleet.run("w", PROMPT) == (1, 0, 0)
    assert fleet.state("w").blocks[Tier.GPU] == 6


def test_what_follows_an_unidentified_block_is_not_credited(fleet: SmallFleet) -> None:
    fleet.store("w", A[:3], TOKENS[:12], extra_keys=[None, [{"new": 1}], None])
    fleet.store("w", A[3:4], TOKENS[12:16], parent=A[2])
    fleet.store("w", B[1:2], TOKENS[4:8], parent=A[0], extra_keys=[None])
    assert fleet.run("w", PROMPT) == (
        2,
        0,
        0,
    )  # the plain second block, not what hangs on the other
    state = fleet.state("w")
    assert (state.unnamed, state.orphans) == (3, 0)
    assert state.skips[ClaimSkip.AFTER_UNIDENTIFIED] == 1
    fleet.remove("w", A[:4])
    assert fleet.state("w").unnamed == 0


def test_a_block_of_another_size_than_its_parent_is_not_credited(fleet: SmallFleet) -> None:
    fleet.store("w", A[:2], TOKENS[:8])
    fleet.store("w", A[2:3], TOKENS[8:10], parent=A[1])
    assert fleet.state("w").skips[ClaimSkip.BLOCK_SIZE_MIXED] == 1
    assert fleet.run("w", PROMPT) == (2, 0, 0)


def test_pairs_are_another_key_space(fleet: SmallFleet) -> None:
    """Block size 4: the pair block of 1..4 needs the fifth token."""
    fleet.store("w", A[:1], [1, 2, 3, 4, 5], block_size=4, is_eagle=True)
    fleet.store("cold", A[:1], [1, 2, 3, 4])
    assert [fleet.run(w, prompt([1, 2, 3, 4, 5])) for w in ("w", "cold")] == [(1, 0, 0)] * 2
    assert [fleet.run(w, prompt([1, 2, 3, 4])) for w in ("w", "cold")] == [(0, 0, 0), (1, 0, 0)]


def test_hashes_may_be_bytes(fleet: SmallFleet) -> None:
    hashes = [bytes([i]) * 32 for i in range(3)]
    fleet.store("w", hashes[:2], TOKENS[:8])
    fleet.store("w", hashes[2:], TOKENS[8:12], parent=hashes[1])
    fleet.remove("w", hashes[1:2])
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_two_hashes_of_one_block_hold_it_until_both_go(fleet: SmallFleet) -> None:
    """Namespaces that the events do not tell apart: different hashes, equal tokens."""
    for hashes in (A[:2], B[:2]):
        fleet.store("w", hashes, TOKENS[:8])
    fleet.remove("w", A[:2])
    assert fleet.run("w", PROMPT) == (2, 0, 0)
    fleet.remove("w", B[:2])
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0


# Ranks and models


def test_ranks_of_a_worker_are_apart_even_beyond_the_advertised_number() -> None:
    fleet = SmallFleet(worker_spec("w", num_ranks=2))
    for dp_rank, count in ((0, 1), (1, 2), (5, 3)):
        event = BlockStored(A[:count], None, TOKENS[: 4 * count], 4, "GPU")
        fleet.index.apply(rank("w")._replace(dp_rank=dp_rank), EventBatch(0.0, [event]), 0.0)
    ranks = [rank("w")._replace(dp_rank=dp_rank) for dp_rank in (0, 1, 2, 5)]
    assert [m.gpu_blocks for m in fleet.index.match(PROMPT, ranks, 0.0)] == [1, 2, 0, 3]
    fleet.index.check()


def test_models_are_apart() -> None:
    """Whatever their workers call them besides: a prompt comes with the model's own name."""
    fleet = SmallFleet(
        worker_spec("w", model="m1", aliases=("m2",), adapters=("ad",)),
        worker_spec("v", model="m2"),
    )
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.store("w", B[:2], TOKENS[:8], lora_name="ad")
    fleet.store("v", A[:1], TOKENS[:4])
    for model, adapter, w, v in [("m1", None, 3, 0), ("m2", None, 0, 1), ("m1", "ad", 2, 0), ("x", None, 0, 0)]:  # fmt: skip
        request = prompt(TOKENS, model, adapter)
        assert (fleet.run("w", request)[0], fleet.run("v", request)[0]) == (w, v), model
        for worker in ("w", "v"):
            fleet.serve(worker, request, 0)  # evidence of a model that it does not serve is none
    assert fleet.run("v", prompt(TOKENS, "m1"))[0] == fleet.run("w", prompt(TOKENS, "m2"))[0] == 0


def test_queued_events_of_a_removed_worker_bring_nothing_back(fleet: SmallFleet) -> None:
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.index.remove_worker(rank("w").worker)
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.index.set_trust(rank("w"), Trust.EXACT, fleet.now)
    assert fleet.match("w", PROMPT).trust is Trust.NONE
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    assert fleet.index.stats().skips[ClaimSkip.UNKNOWN_WORKER] == 1
    assert fleet.index.stats().ranks == 1
    fleet.add("w")
    fleet.store("w", A[:1], TOKENS[:4])
    assert fleet.run("w", PROMPT) == (1, 0, 0)


def test_new_details_of_a_worker_keep_its_claims() -> None:
    fleet = SmallFleet(worker_spec("w"))
    fleet.store("w", A[:3], TOKENS[:12])
    fleet.index.add_worker(worker_spec("w", aliases=("alias",), max_model_len=9), fleet.now)
    assert fleet.run("w", PROMPT) == (3, 0, 0)
    fleet.index.add_worker(worker_spec("w", sources=()), fleet.now)
    assert fleet.run("w", PROMPT) == (0, 0, 0)
    fleet.index.check()
