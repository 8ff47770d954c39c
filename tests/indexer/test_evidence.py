"""Served requests against events: predicted, observed and announced blocks, and what they heal."""

import pytest

from indexer.actions import ForgetReason
from indexer.limits import IndexLimits
from indexer.trust import Trust
from tests.indexer.served_prompt import REQUEST, TOKENS, A, counts, store
from tests.indexer.small_fleet import SmallFleet, blocks, prompt, rank, worker_spec

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
    assert state.dropped_marks == 3 * 10 + 20, "predicted, and observed"
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
