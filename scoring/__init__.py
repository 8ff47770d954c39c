"""Which rank should take a prompt: load, cost, policies, and the planner that decides."""

from scoring.brain import (
    Brain,
    NoCandidateError,
    Outcome,
    OutcomeKind,
    Plan,
    PlanRequest,
    TooManyRequestsError,
)
from scoring.counters import PlannerCounters, ReuseSums
from scoring.decision import Candidate, Decision, Exclusion, RankName, Reason
from scoring.decision_json import decision_json, decision_record, decisions_json
from scoring.load import RankLoad
from scoring.planner import Planner, PlannerLimits
from scoring.policies import PolicyName
from scoring.prefix_index import IndexVerb, PrefixIndex
from scoring.rank_pin import RankPin, rank_pins
from scoring.rates import RateName, RateSource, configured_rates, with_hit_weights
from scoring.speeds import NoSample
from scoring.worker_table import PlannedWorker, TooManyWorkersError

__all__ = [
    "Brain",
    "Candidate",
    "Decision",
    "Exclusion",
    "IndexVerb",
    "NoCandidateError",
    "NoSample",
    "Outcome",
    "OutcomeKind",
    "Plan",
    "PlanRequest",
    "PlannedWorker",
    "Planner",
    "PlannerCounters",
    "PlannerLimits",
    "PolicyName",
    "PrefixIndex",
    "RankLoad",
    "RankName",
    "RankPin",
    "RateName",
    "RateSource",
    "Reason",
    "ReuseSums",
    "TooManyRequestsError",
    "TooManyWorkersError",
    "configured_rates",
    "decision_json",
    "decision_record",
    "decisions_json",
    "rank_pins",
    "with_hit_weights",
]
