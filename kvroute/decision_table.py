"""A decision record as a table for people, and in one sentence."""

from rich.table import Table

from loadgen import CandidateView, ChosenView, DecisionView


def decision_table(decision: DecisionView) -> Table:
    """One row a candidate, best first; one column a cost term that any of them has."""
    terms = list(dict.fromkeys(name for one in decision.candidates for name in one.terms_ms))
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    table.add_column("rank")
    table.add_column("trust")
    for heading in ("L1", "L2", "L3", "predicted", "matched tokens", "in flight", "queued tokens"):
        table.add_column(heading, justify="right")
    for name in terms:
        table.add_column(f"{name} ms", justify="right")
    table.add_column("cost ms", justify="right")
    for candidate in decision.candidates:
        table.add_row(*_row(candidate, terms, decision.chosen))
    return table


def reading(decision: DecisionView) -> str:
    """What was decided, on what, in one line."""
    tokens = decision.prompt_tokens
    prompt = "a prompt of unknown length" if tokens is None else f"{tokens:,} prompt tokens"
    where = "nobody"
    if decision.chosen is not None:
        where = f"{decision.chosen.worker}/{decision.chosen.dp_rank}"
    counts = [f"{count} {reason}" for reason, count in decision.excluded.items()]
    others = f" Not shown or not eligible: {', '.join(counts)}." if counts else ""
    learned = sorted(name for name, source in decision.rates.items() if source == "learned")
    rates = f" Learned rates: {', '.join(learned)}." if learned else ""
    return (
        f"{prompt} of {decision.model} ({decision.api}) go to {where}: {decision.reason}, "
        f"policy {decision.policy}.{others}{rates}"
    )


def _row(candidate: CandidateView, terms: list[str], chosen: ChosenView | None) -> list[str]:
    is_chosen = chosen is not None and (candidate.worker, candidate.dp_rank) == (
        chosen.worker,
        chosen.dp_rank,
    )
    gpu = str(candidate.gpu_blocks)
    if candidate.observed_blocks:
        gpu += f" ({candidate.observed_blocks} observed)"
    costs = [
        "–" if name not in candidate.terms_ms else f"{candidate.terms_ms[name]:,.1f}"
        for name in terms
    ]
    total = "–" if candidate.cost_ms is None else f"{candidate.cost_ms:,.1f}"
    return [
        "→" if is_chosen else "",
        f"{candidate.worker}/{candidate.dp_rank}",
        candidate.trust,
        gpu,
        str(candidate.host_pinned_blocks),
        str(candidate.storage_blocks),
        str(candidate.predicted_blocks),
        f"{candidate.matched_tokens:,}",
        str(candidate.in_flight),
        f"{candidate.queued_prefill_tokens:,}",
        *costs,
        candidate.excluded_by or total,
    ]
