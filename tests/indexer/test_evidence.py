"""Served requests against events: observed and predicted blocks, contradictions, doubt, trust."""

import pytest

from indexer.actions import ForgetReason
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineKind, Tier
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank, worker_spec

A = names(0, 8)
TOKENS = blocks(0, 8)
REQUEST = prompt([*TOKENS, 1, 2])  # eight full blocks and a partial one


def store(first: int, last: int, medium: str = "GPU") -> BlockStored:
    parent = A[first - 1] if first else None
    return BlockStored(A[first:last], parent, TOKENS[4 * first : 4 * last], 4, medium)


def counts(fleet: SmallFleet, worker: str = "w") -> tuple[int, int, int]:
    match = fleet.match(worker, REQUEST)
    return match.gpu_blocks, match.observed_blocks, match.predicted_blocks


# Predicted, observed, announced


def test_a_dispatched_prompt_is_predicted_until_it_times_out() -> None:
    fleet = SmallFleet("w", limits=IndexLimits(predicted_ttl_s=30.0))
    fleet.apply("w", store(0, 3))
    fleet.index.predict(rank("w"), REQUEST, fleet.now)
    assert counts(fleet) == (3, 0, 5)
    fleet.wait(20.0)
    fleet.index.predict(rank("w"), REQUEST, fleet.now)  # another request renews them
    fleet.wait(20.0)
    assert counts(fleet) == (3, 0, 5)
    fleet.wait(20.0)
    assert counts(fleet) == (3, 0, 0)


def test_predicted_blocks_reach_over_what_is_held_behind_them() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.remove("w", A[2:4])
    fleet.index.predict(rank("w"), REQUEST, fleet.now)
    assert counts(fleet) == (2, 0, 6)


def test_events_turn_predicted_and_observed_blocks_into_announced_ones() -> None:
    fleet = SmallFleet("w")
    fleet.index.predict(rank("w"), REQUEST, fleet.now)
    fleet.apply("w", store(0, 3))
    assert counts(fleet) == (3, 0, 5)
    fleet.index.observe(rank("w"), REQUEST, fleet.now)
    assert counts(fleet) == (8, 5, 0)
    fleet.apply("w", store(3, 8))
    assert counts(fleet) == (8, 0, 0)
    fleet.remove("w", A[5:])
    assert counts(fleet) == (5, 0, 0)


def test_on_an_exact_rank_evidence_yields_to_what_events_said_since() -> None:
    """Stored and removed again before the first byte is noticed: the block is gone."""
    fleet = SmallFleet("w")
    fleet.index.predict(rank("w"), REQUEST, fleet.now)
    fleet.apply("w", store(0, 8))
    fleet.remove("w", A[4:])
    fleet.index.observe(rank("w"), REQUEST, fleet.now)
    assert counts(fleet) == (4, 0, 0)


@pytest.mark.parametrize(
    ("trust", "lives_s", "dies_s"),
    [(Trust.EXACT, 25.0, 10.0), (Trust.JOINED, 590.0, 20.0), (Trust.NONE, 590.0, 20.0)],
)
def test_observed_blocks_age_by_trust(trust: Trust, lives_s: float, dies_s: float) -> None:
    fleet = SmallFleet("w", trust=trust)
    fleet.serve("w", REQUEST)
    fleet.wait(lives_s)
    assert counts(fleet) == (8, 8, 0)
    fleet.wait(dies_s)
    assert counts(fleet) == (0, 0, 0)
    assert fleet.index.stats().blocks == 0


def test_an_announced_host_copy_counts_before_evidence() -> None:
    """The numbers of announced blocks stay exact: evidence is subtracted from GPU alone."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.apply("w", store(0, 4, "CPU_PINNED"))
    fleet.apply("w", store(4, 6, "DISK"))
    fleet.serve("w", REQUEST)
    match = fleet.match("w", REQUEST)
    assert (match.gpu_blocks, match.observed_blocks) == (4, 4)
    assert (match.host_pinned_blocks, match.storage_blocks) == (4, 0)


@pytest.mark.parametrize("how", ["clear", "restart", "gpu clear"])
def test_what_voids_claims_voids_evidence(how: str) -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.serve("w", REQUEST)
    if how == "restart":
        fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    else:
        fleet.clear("w", "GPU" if how == "gpu clear" else None)
    assert counts(fleet) == (0, 0, 0)


def test_a_rank_without_events_is_known_by_what_it_served() -> None:
    fleet = SmallFleet(worker_spec("w", sources=(), block_size=None), trust=Trust.NONE)
    fleet.serve("w", REQUEST)
    match = fleet.match("w", REQUEST)
    assert (match.trust, match.block_size) == (Trust.NONE, 16)
    assert (match.gpu_blocks, match.observed_blocks) == (2, 2)


def test_evidence_is_bounded_and_the_oldest_prompts_lose_their_ends() -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED, limits=IndexLimits(observed=100, predicted=30))
    requests = [prompt(blocks(1_000 * i, 40)) for i in range(3)]
    for request in requests:
        fleet.serve("w", request)
    state = fleet.state("w")
    assert (state.observed, state.predicted) == (100, 0)
    assert [fleet.match("w", request).gpu_blocks for request in requests] == [20, 40, 40]


# Late join: names by a child's parent link


@pytest.mark.parametrize("order", ["child first", "request first"])
def test_a_childs_parent_link_names_an_observed_block(order: str) -> None:
    """Blocks 0-3 were stored before we joined; the engine announces 4-7 under the hash of 3."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    child = store(4, 8)
    if order == "child first":
        fleet.apply("w", child)
        assert fleet.state("w").orphans == 4
        fleet.serve("w", REQUEST)
    else:
        fleet.serve("w", REQUEST)
        fleet.apply("w", child)
    assert counts(fleet) == (8, 4, 0)
    assert fleet.state("w").orphans == 0
    fleet.remove("w", A[3:4])
    assert counts(fleet) == (3, 3, 0)


def test_a_block_that_follows_two_others_names_neither() -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    question = TOKENS[28:32]
    for first in (1_000, 2_000):
        fleet.serve("w", prompt([*blocks(first, 3), *question]))
    fleet.store("w", A[7:8], question, parent=A[6])
    assert fleet.state("w").orphans == 1


def test_late_join_heals_by_traffic() -> None:
    """Nothing was heard of the hot root; after one request it is credited again."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    assert counts(fleet) == (0, 0, 0)
    fleet.serve("w", REQUEST, cached_tokens=32)
    assert counts(fleet) == (8, 8, 0)


# Reports


def test_contradicted_claims_are_purged_after_three_reports() -> None:
    """The engine dropped its cache without an event."""
    fleet = SmallFleet("w", "other")
    prompts = [REQUEST, *(prompt(blocks(1_000 * i, 8)) for i in range(1, 4))]
    for worker in ("w", "other"):
        for i, request in enumerate(prompts):
            fleet.store(worker, names(100 * i, 8), blocks(1_000 * i, 8))
            assert fleet.match(worker, request).gpu_blocks == 8
    for request in prompts[:2]:
        fleet.serve("w", request, cached_tokens=0)
        assert fleet.match("w", prompts[3]).gpu_blocks == 8
    fleet.serve("w", prompts[2], cached_tokens=0)
    fleet.wait(2.0)  # for removals that may be under way
    assert fleet.match("w", prompts[3]).gpu_blocks == 0
    assert fleet.match("other", prompts[3]).gpu_blocks == 8
    proven = fleet.match("w", prompts[2])
    assert (proven.gpu_blocks, proven.observed_blocks, proven.trust) == (8, 8, Trust.STALE)
    state = fleet.state("w")
    assert (state.contradictions, state.purges) == (3, 1)
    assert fleet.findings().keys() == {"clears_missing"}
    fleet.serve("w", prompts[2], cached_tokens=32)
    assert fleet.trust("w") is Trust.JOINED
    fleet.clear("w")
    assert fleet.trust("w") is Trust.EXACT


@pytest.mark.parametrize(
    ("cached_tokens", "is_contradiction"),
    [(None, False), (0, True), (16, True), (20, True), (24, True), (28, False), (32, False)],
)
def test_what_a_report_contradicts(cached_tokens: int | None, is_contradiction: bool) -> None:
    """Eight blocks of four are claimed; one block less is ordinary (draft models, last token)."""
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.serve("w", REQUEST, cached_tokens)
    assert fleet.state("w").contradictions == is_contradiction


def test_the_last_token_is_always_computed() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.serve("w", prompt(TOKENS), cached_tokens=24)
    assert fleet.state("w").contradictions == 0


@pytest.mark.parametrize("medium", ["GPU", None])
def test_a_rank_that_removed_since_is_not_contradicted(medium: str | None) -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    gone = BlockRemoved(A[7:], "GPU") if medium else AllBlocksCleared()
    fleet.serve("w", REQUEST, 0, [gone])
    assert fleet.state("w").contradictions == 0


def test_agreement_between_contradictions_prevents_a_purge() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    for cached in (0, 0, 32, 0, 0):
        fleet.serve("w", REQUEST, cached)
    assert fleet.state("w").purges == 0
    assert counts(fleet)[0] == 8


def test_hybrid_attention_explains_missing_hits() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A[:1], TOKENS[:4], group_idx=0, spec_kind="sliding_window")
    fleet.store("w", A, TOKENS, group_idx=1, spec_kind="full_attention")
    for _ in range(4):
        fleet.serve("w", REQUEST, 0)
    assert (fleet.state("w").purges, counts(fleet)[0]) == (0, 8)
    assert "cached_tokens_contradict" in fleet.findings()


def test_sums_of_claims_and_reports() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 6))
    fleet.serve("w", REQUEST, 24)
    fleet.serve("w", REQUEST, None)
    state = fleet.state("w")
    assert (state.served, state.reports) == (2, 1)
    assert (state.claimed_blocks, state.reported_blocks) == (6, 6)


# Losses


def test_claims_older_than_a_loss_are_doubtful_and_age_out() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 4), store(0, 4, "CPU"))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    fleet.store("w", names(50, 2), blocks(5_000, 2))
    assert (fleet.state("w").doubtful, fleet.trust("w")) == (8, Trust.DEGRADED)
    assert counts(fleet) == (4, 0, 0)
    fleet.wait(599.0)
    assert counts(fleet) == (4, 0, 0)
    fleet.wait(2.0)
    assert counts(fleet) == (0, 0, 0)
    assert fleet.match("w", prompt(blocks(5_000, 2))).gpu_blocks == 2
    assert fleet.trust("w") is Trust.JOINED


def test_each_loss_leaves_claims_their_own_time() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 4))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    fleet.wait(590.0)
    fleet.store("w", names(50, 2), blocks(5_000, 2))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.wait(11.0)
    later = prompt([*blocks(5_000, 2), 1])
    assert (counts(fleet), fleet.match("w", later).gpu_blocks) == ((0, 0, 0), 2)
    assert fleet.trust("w") is Trust.DEGRADED
    fleet.wait(588.0)
    assert fleet.match("w", later).gpu_blocks == 2
    fleet.wait(2.0)
    assert fleet.match("w", later).gpu_blocks == 0
    assert (fleet.state("w").doubtful, fleet.trust("w")) == (0, Trust.JOINED)


def test_doubtful_claims_are_confirmed_by_events_and_by_evidence() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.set_trust(rank("w"), Trust.DEGRADED, fleet.now)
    fleet.apply("w", store(0, 2))
    assert fleet.state("w").doubtful == 6
    fleet.serve("w", prompt(TOKENS[:20]))
    assert fleet.state("w").doubtful == 3
    fleet.remove("w", A[7:])
    assert fleet.state("w").doubtful == 2
    fleet.wait(601.0)
    assert counts(fleet) == (5, 0, 0)


def test_a_restart_ends_the_doubt() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.index.record_loss(rank("w"), fleet.now)
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    fleet.apply("w", store(0, 8))
    fleet.wait(700.0)
    assert counts(fleet) == (8, 0, 0)


@pytest.mark.parametrize("how", ["replayed", "cleared"])
def test_a_repair_ends_the_finding_of_a_loss(how: str) -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    fleet.index.record_loss(rank("w"), fleet.now)
    assert "loss_unrepaired" in fleet.findings()
    if how == "replayed":
        fleet.index.forget(rank("w"), ForgetReason.REBUILT, fleet.now)
    else:
        fleet.clear("w")
    fleet.apply("w", store(0, 8))
    assert fleet.findings() == {}
    fleet.index.record_loss(rank("w"), fleet.now)
    assert "loss_unrepaired" in fleet.findings()


# Block sizes and versions


def test_each_rank_is_looked_up_at_the_size_its_events_use() -> None:
    fleet = SmallFleet(worker_spec("a", block_size=16), worker_spec("b", block_size=16))
    tokens = list(range(256))
    request = prompt(tokens)
    fleet.store("a", names(0, 16), tokens)
    assert fleet.match("a", request).matched_blocks == 16
    fleet.index.forget(rank("a"), ForgetReason.RESTARTED, fleet.now)
    assert fleet.match("a", request).block_size == 16
    fleet.store("a", names(0, 4), tokens)
    fleet.store("b", names(0, 8), tokens)
    for worker, size, count in (("a", 64, 4), ("b", 32, 8)):
        match = fleet.match(worker, request)
        assert (match.block_size, match.matched_blocks, match.matched_tokens) == (size, count, 256)
    evidence = fleet.findings()["block_size_disagrees"]
    assert (evidence["num_ranks"], evidence["advertised_block_size"]) == (2, 16)


def test_the_longest_match_wins_where_one_rank_uses_two_sizes() -> None:
    fleet = SmallFleet("w")
    tokens = list(range(64))
    fleet.store("w", names(0, 4), tokens[:16])
    fleet.store("w", names(50, 3), tokens[:48])
    assert fleet.match("w", prompt(tokens)).matched_tokens == 48
    fleet.remove("w", names(50, 3))
    assert fleet.match("w", prompt(tokens)).matched_tokens == 16


@pytest.mark.parametrize(
    ("version", "is_believed"),
    [
        ("0.4.7", False), ("0.5.14", False), ("0.5.14.post1", False), ("0.5", False),
        ("0.5.15", True), ("v0.5.23", True), ("0.6.0", True), ("1.0", True), (None, True), ("main", True),
    ],
)  # fmt: skip
def test_old_sglang_is_not_believed(version: str | None, is_believed: bool) -> None:
    fleet = SmallFleet(worker_spec("w", engine=EngineKind.SGLANG, version=version))
    fleet.apply("w", store(0, 8))
    assert (counts(fleet)[0] == 8) is is_believed
    assert fleet.trust("w") is (Trust.EXACT if is_believed else Trust.NONE)
    fleet.serve("w", REQUEST)
    assert counts(fleet)[0] == 8
    assert fleet.state("w").blocks[Tier.GPU] == (8 if is_believed else 0)


# Trust


@pytest.mark.parametrize("trust", list(Trust))
def test_the_streams_word_stands_where_nothing_speaks_against_it(trust: Trust) -> None:
    fleet = SmallFleet("w", trust=trust)
    expected = Trust.JOINED if trust is Trust.DEGRADED else trust  # no claim is older than the loss
    assert fleet.trust("w") is expected
    assert fleet.match("w", REQUEST).trust is expected


def test_a_rank_that_owes_events_and_is_silent_is_stale() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 2))
    fleet.wait(1_000.0)
    assert fleet.trust("w") is Trust.EXACT
    fleet.serve("w", REQUEST, cached_tokens=8)
    fleet.wait(61.0)
    assert fleet.trust("w") is Trust.STALE
    fleet.apply("w", store(2, 8))
    assert fleet.trust("w") is Trust.EXACT


@pytest.mark.parametrize(
    ("request_tokens", "cached_tokens"),
    [([*TOKENS, 1], 32), (TOKENS, 28), ([*TOKENS, 1], 28), ([1, 2, 3], 0)],
)
def test_a_cached_prompt_owes_no_event(request_tokens: list[int], cached_tokens: int) -> None:
    """Whole, all but the last token, one block less with a draft model; or shorter than a block."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.apply("w", store(0, 2))
    fleet.wait(10.0)
    fleet.serve("w", prompt(request_tokens), cached_tokens)
    fleet.wait(100.0)
    assert fleet.trust("w") is Trust.JOINED
