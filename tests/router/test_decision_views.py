"""Decisions are described as they are written."""

from router.decision_views import CandidateView, ChosenView, DecisionView, DryRunView
from scoring import PlanRequest, decision_record
from tests.router.stub_brain import StubBrain


def test_every_field_that_is_written_is_described_and_no_other() -> None:
    plan = StubBrain({"w0": "http://w0"}).plan(PlanRequest("r", "chat", "m", None, 0.0), 0.0)
    record = decision_record(plan.decision)
    candidates, chosen = record["candidates"], record["chosen"]
    assert isinstance(candidates, list)
    assert isinstance(chosen, dict)
    assert record.keys() == DecisionView.model_fields.keys()
    assert candidates[0].keys() == CandidateView.model_fields.keys()
    assert chosen.keys() == ChosenView.model_fields.keys()
    of_prompt = {"unrouted_by", "is_cut", "is_approximate"}
    assert DryRunView.model_fields.keys() == record.keys() | of_prompt
