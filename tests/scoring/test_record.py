"""The decision record: the best in full, the rest as counts, and the JSON that users see."""

import json

import pytest

from indexer.trust import Trust
from protocol import Tier, TokenBytes
from scoring.decision_json import decision_json, decision_record, decisions_json
from scoring.planner import Planner
from tests.scoring.fleet import TruthIndex, planner_of, rank, request, spec, tokens_of

PROMPT = tokens_of(325)

EXAMPLE = json.loads(
    """
{"request_id": "…", "time": 1790000000.0, "model": "…", "api": "chat", "policy": "cost",
 "prompt_tokens": 12035, "chosen": {"worker": "w3", "dp_rank": 0}, "reason": "lowest_cost",
 "candidates": [{"worker": "w3", "dp_rank": 0, "eligible": true, "excluded_by": null,
   "trust": "exact", "block_size": 64,
   "gpu_blocks": 96, "host_pinned_blocks": 32, "storage_blocks": 0, "predicted_blocks": 0,
   "observed_blocks": 0, "matched_tokens": 8192, "in_flight": 3, "queued_prefill_tokens": 2048,
   "terms_ms": {"queue": 256.0, "prefill": 572.0, "load_back": 51.2, "fetch": 0.0, "decode": 12.0},
   "cost_ms": 891.2, "storage_source": null}],
 "timing_us": {"render": 30, "tokenize": 210, "keys": 25, "match": 3, "score": 9}}
"""
)
"""The record as it is documented."""


def large_fleet(index: TruthIndex) -> Planner:
    planner = planner_of(index, *(f"w{number}" for number in range(20)))
    planner.add_worker(spec("other", model="m2"))
    planner.set_draining(rank("w1").worker, is_draining=True)
    planner.set_draining(rank("w2").worker, is_draining=True)
    for number in range(20):
        index.hold(rank(f"w{number}"), TokenBytes(PROMPT[: number * 64]))
    return planner


def test_json_has_the_documented_names_in_the_documented_order() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    record = json.loads(decision_json(planner.plan(request(PROMPT), 0.0).decision))
    documented = [name for name in record if name in EXAMPLE]
    assert documented == list(EXAMPLE)
    candidate, example = record["candidates"][0], EXAMPLE["candidates"][0]
    assert list(candidate) == list(example)
    assert list(candidate["terms_ms"]) == list(example["terms_ms"])
    assert list(record["timing_us"]) == list(EXAMPLE["timing_us"])
    assert record["time"] == 1_790_000_000.0
    for name, value in example.items():
        if value is not None:
            assert isinstance(candidate[name], type(value)), name


def test_the_record_of_the_chosen_rank() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b")
    index.hold(rank("b"), PROMPT, Tier.HOST)
    index.hold(rank("b"), TokenBytes(PROMPT[: 12 * 64]))
    index.trusts[rank("b")] = Trust.JOINED
    record = decision_record(planner.explain(request(PROMPT, max_output_tokens=4), 0.0))
    assert record["chosen"] == {"worker": "b", "dp_rank": 0}
    candidates = record["candidates"]
    assert isinstance(candidates, list)
    assert candidates[0] == {
        "worker": "b",
        "dp_rank": 0,
        "eligible": True,
        "excluded_by": None,
        "trust": "joined",
        "block_size": 16,
        "gpu_blocks": 12,
        "host_pinned_blocks": 8,
        "storage_blocks": 0,
        "predicted_blocks": 0,
        "observed_blocks": 0,
        "matched_tokens": 320,
        "in_flight": 0,
        "queued_prefill_tokens": 0,
        "terms_ms": {
            "queue": 0.0,
            "prefill": pytest.approx(0.6288, abs=1e-4),
            "load_back": 3.2,
            "fetch": 0.0,
            "decode": 0.0,
        },
        "cost_ms": pytest.approx(3.8288, abs=1e-4),
        "storage_source": None,
    }
    assert record["rates"] == dict.fromkeys(["prefill", "load_back", "fetch", "decode"], "default")


def test_doubtful_claims_are_shown_whole_and_priced_in_part() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a", "b", "c")
    for name in "ab":
        index.hold(rank(name), PROMPT)
    index.trusts[rank("a")] = Trust.DEGRADED
    sure, doubtful, cold = planner.explain(request(PROMPT), 0.0).candidates
    assert [one.worker for one in (sure, doubtful, cold)] == ["b", "a", "c"]
    assert sure.matched_tokens == doubtful.matched_tokens == 320
    assert doubtful.trust == "degraded"
    assert sure.cost_ms is not None
    assert doubtful.cost_ms is not None
    assert cold.cost_ms is not None
    assert sure.cost_ms < doubtful.cost_ms < cold.cost_ms


def test_predicted_blocks_are_priced_as_held_and_not_counted_as_matched() -> None:
    index = TruthIndex()
    planner = planner_of(index, "a")
    planner.plan(request(PROMPT), 0.0)
    found = planner.explain(request(PROMPT), 0.0).candidates[0]
    assert (found.predicted_blocks, found.matched_tokens) == (20, 0)
    assert found.terms_ms["prefill"] == pytest.approx(5 / 8, rel=0.01)


def test_the_best_sixteen_in_full_and_the_rest_as_counts() -> None:
    decision = large_fleet(TruthIndex()).plan(request(PROMPT), 0.0).decision
    assert len(decision.candidates) == 16
    assert decision.num_candidates == 21
    assert decision.excluded == {"draining": 2, "other_model": 1, "ranked_lower": 2}
    costs = [one.cost_ms for one in decision.candidates if one.cost_ms is not None]
    assert len(costs) == 16
    assert costs == sorted(costs)
    assert decision.chosen is not None
    assert decision.candidates[0].worker == decision.chosen.worker == "w19"


def test_all_candidates_on_demand() -> None:
    planner = large_fleet(TruthIndex())
    decision = planner.explain(request(PROMPT), 0.0, all_candidates=True)
    assert len(decision.candidates) == 21
    assert [one.eligible for one in decision.candidates] == [True] * 18 + [False] * 3
    assert decision.excluded == {"draining": 2, "other_model": 1}


def test_rates_are_those_of_the_chosen_and_timing_adds_the_relays() -> None:
    asked = request(PROMPT)
    planner = planner_of(TruthIndex(), "a")
    decision = planner.explain(asked, 0.0)
    assert decision.rate_values == {
        "prefill": 8_000,
        "load_back": 40_000,
        "fetch": 13_300,
        "decode": 0.5,
    }
    assert decision.timing_us == {"render": 0, "tokenize": 0, "keys": 1, "match": 2, "score": 2}


def test_no_candidate_is_json_too() -> None:
    planner = planner_of(TruthIndex())
    record = json.loads(decision_json(planner.explain(request(None, model=None), 0.0)))
    assert record["chosen"] is None
    assert record["candidates"] == []
    assert record["prompt_tokens"] is None
    assert record["model"] == ""


def test_many_decisions_are_one_array() -> None:
    planner = planner_of(TruthIndex(), "a")
    for number in range(3):
        planner.plan(request(PROMPT, f"r{number}"), 0.0)
    found = json.loads(decisions_json(planner.decisions(2)))
    assert [record["request_id"] for record in found] == ["r2", "r1"]
