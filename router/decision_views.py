"""What a decision looks like on the control port: the models by which its OpenAPI description tells of it.

They are written by ``scoring.decision_json``, which is what a recorded decision is, too.
"""

from collections.abc import Mapping

from pydantic import BaseModel

from indexer.storage_source import StorageSource
from indexer.trust import Trust
from prompt import Api
from scoring import PolicyName
from scoring.decision import Exclusion, Reason


class ChosenView(BaseModel):
    """The rank that a request goes to."""

    worker: str
    dp_rank: int


class CandidateView(ChosenView):
    """One rank as it was weighed."""

    eligible: bool
    excluded_by: Exclusion | None
    trust: Trust
    block_size: int
    gpu_blocks: int
    host_pinned_blocks: int
    storage_blocks: int
    predicted_blocks: int
    observed_blocks: int
    matched_tokens: int
    in_flight: int
    queued_prefill_tokens: int
    terms_ms: Mapping[str, float]
    cost_ms: float | None
    storage_source: StorageSource | None


class DecisionView(BaseModel):
    """One decision: the best 16 candidates in full, or all where they are asked for, the rest as counts."""

    request_id: str
    time: float
    model: str
    api: Api
    client: str | None
    policy: PolicyName
    prompt_tokens: int | None
    chosen: ChosenView | None
    reason: Reason
    candidates: list[CandidateView]
    num_candidates: int
    excluded: Mapping[str, int]
    timing_us: Mapping[str, int]
    rates: Mapping[str, str]
    rate_values: Mapping[str, float]


class DryRunView(DecisionView):
    """Where a request would go. ``unrouted_by``: why by load alone."""

    unrouted_by: str | None
    is_cut: bool
    is_approximate: bool
