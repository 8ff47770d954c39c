"""What ``x-kvroute-score`` says: how the chosen rank was weighed, as a dictionary of RFC 8941."""

from router.headers import RawHeader
from scoring.brain import Plan
from scoring.decision import Candidate

SCORE = b"x-kvroute-score"


def score_field(plan: Plan) -> RawHeader:
    """The field of one answer."""
    decision, rank = plan.decision, plan.rank
    parts = [f"policy={decision.policy}", f"reason={decision.reason.value}"]
    if decision.prompt_tokens is not None:
        parts.append(f"prompt={decision.prompt_tokens}")
    for one in decision.candidates:
        if one.worker == rank.worker and one.dp_rank == rank.dp_rank:
            parts += _weighed(one)
            break
    return SCORE, ", ".join(parts).encode()


def _weighed(one: Candidate) -> list[str]:
    parts = [
        f"matched={one.matched_tokens}",
        f"gpu={one.gpu_blocks}",
        f"host={one.host_pinned_blocks}",
        f"storage={one.storage_blocks}",
        f"predicted={one.predicted_blocks}",
        f"block={one.block_size}",
        f"trust={one.trust}",
    ]
    return parts if one.cost_ms is None else [*parts, f"cost={one.cost_ms:.3f}"]
