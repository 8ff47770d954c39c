"""Reports against claims: what contradicts them, and when all are dropped."""

import pytest

from indexer.trust import Trust
from protocol import AllBlocksCleared, BlockRemoved
from tests.indexer.served_prompt import REQUEST, TOKENS, A, counts, store
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt


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
