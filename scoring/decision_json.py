"""Decisions as JSON, in the order and with the names in which users read them."""

from collections.abc import Iterable

import orjson

from scoring.decision import Candidate, Decision

_DECIMALS = 4


def decision_json(decision: Decision) -> bytes:
    """One decision as one JSON object, without a line break."""
    return orjson.dumps(decision_record(decision))


def decisions_json(decisions: Iterable[Decision]) -> bytes:
    """Decisions as one JSON array."""
    return orjson.dumps([decision_record(decision) for decision in decisions])


def decision_record(decision: Decision) -> dict[str, object]:
    """One decision as plain values; milliseconds are rounded to 4 decimals."""
    chosen = decision.chosen
    return {
        "request_id": decision.request_id,
        "time": decision.time,
        "model": decision.model,
        "api": str(decision.api),
        "client": decision.client,
        "policy": decision.policy,
        "prompt_tokens": decision.prompt_tokens,
        "chosen": None
        if chosen is None
        else {"worker": str(chosen.worker), "dp_rank": chosen.dp_rank},
        "reason": decision.reason.value,
        "candidates": [_candidate_record(candidate) for candidate in decision.candidates],
        "num_candidates": decision.num_candidates,
        "excluded": dict(decision.excluded),
        "timing_us": dict(decision.timing_us),
        "rates": dict(decision.rates),
        "rate_values": {
            name: round(value, _DECIMALS) for name, value in decision.rate_values.items()
        },
    }


def _candidate_record(candidate: Candidate) -> dict[str, object]:
    excluded_by, cost_ms = candidate.excluded_by, candidate.cost_ms
    source = candidate.storage_source
    return {
        "worker": str(candidate.worker),
        "dp_rank": candidate.dp_rank,
        "eligible": candidate.eligible,
        "excluded_by": None if excluded_by is None else excluded_by.value,
        "trust": str(candidate.trust),
        "block_size": candidate.block_size,
        "gpu_blocks": candidate.gpu_blocks,
        "host_pinned_blocks": candidate.host_pinned_blocks,
        "storage_blocks": candidate.storage_blocks,
        "predicted_blocks": candidate.predicted_blocks,
        "observed_blocks": candidate.observed_blocks,
        "matched_tokens": candidate.matched_tokens,
        "in_flight": candidate.in_flight,
        "queued_prefill_tokens": candidate.queued_prefill_tokens,
        "terms_ms": {name: round(value, _DECIMALS) for name, value in candidate.terms_ms.items()},
        "cost_ms": None if cost_ms is None else round(cost_ms, _DECIMALS),
        "storage_source": None if source is None else source.value,
    }
