"""Ranks, workers and models of the fleet are apart, and come and go."""

import pytest

from indexer.identity import ClaimSkip
from indexer.trust import Trust
from protocol import BlockStored, EventBatch
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank, worker_spec

A = names(0, 6)
B = names(100, 6)
TOKENS = blocks(0, 6)
PROMPT = prompt(TOKENS)


@pytest.fixture
def fleet() -> SmallFleet:
    return SmallFleet("w", "cold")


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
