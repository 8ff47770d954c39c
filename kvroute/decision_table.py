"""A decision record as a table for people, and in one sentence."""

from collections.abc import Callable

from rich.table import Table

from loadgen import CandidateView, DecisionView, RankNameView

_Cell = Callable[[CandidateView], str]


def decision_table(decision: DecisionView) -> Table:
    """One row a candidate, best first; one column a cost term that any of them has.

    Blocks are counted on their fastest tier: L1 is GPU, L2 pinned host memory, L3 storage.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for heading in ("rank", "trust"):
        table.add_column(heading, no_wrap=True)
    numbers = _number_columns(decision)
    for heading, _ in numbers:
        table.add_column(heading, justify="right")
    for one in decision.candidates:
        mark = "→" if _is_chosen(one, decision.chosen) else ""
        cells = [cell(one) for _, cell in numbers]
        table.add_row(mark, f"{one.worker}/{one.dp_rank}", one.trust, *cells)
    return table


def reading(decision: DecisionView) -> str:
    """What was decided, and on what, in one paragraph."""
    tokens = decision.prompt_tokens
    prompt = "A prompt of unknown length" if tokens is None else f"{tokens:,} prompt tokens"
    where = "nobody"
    if decision.chosen is not None:
        where = f"{decision.chosen.worker}/{decision.chosen.dp_rank}"
    counts = [f"{count} {reason}" for reason, count in decision.excluded.items()]
    others = f" Not shown or not eligible: {', '.join(counts)}." if counts else ""
    learned = sorted(name for name, source in decision.rates.items() if source == "learned")
    rates = f" Learned rates: {', '.join(learned)}." if learned else ""
    return (
        f"{prompt} of {decision.model} ({decision.api}) would go to {where}: {decision.reason}, "
        f"policy {decision.policy}.{others}{rates}"
    )


def _number_columns(decision: DecisionView) -> list[tuple[str, _Cell]]:
    """Evidence and predictions have a column only where there are any."""
    candidates = decision.candidates
    columns: list[tuple[str, _Cell]] = [
        ("L1", lambda one: str(one.gpu_blocks)),
        ("L2", lambda one: str(one.host_pinned_blocks)),
        ("L3", lambda one: str(one.storage_blocks)),
    ]
    if any(one.observed_blocks for one in candidates):
        columns.append(("observed", lambda one: str(one.observed_blocks)))
    if any(one.predicted_blocks for one in candidates):
        columns.append(("predicted", lambda one: str(one.predicted_blocks)))
    columns += [
        ("matched tokens", lambda one: f"{one.matched_tokens:,}"),
        ("in flight", lambda one: str(one.in_flight)),
        ("queued tokens", lambda one: f"{one.queued_prefill_tokens:,}"),
    ]
    terms = dict.fromkeys(name for one in candidates for name in one.terms_ms)
    columns += [(f"{name} ms", _term(name)) for name in terms]
    return [*columns, ("cost ms", _cost)]


def _term(name: str) -> _Cell:
    return lambda one: f"{one.terms_ms[name]:,.1f}" if name in one.terms_ms else "–"


def _cost(one: CandidateView) -> str:
    return one.excluded_by or ("–" if one.cost_ms is None else f"{one.cost_ms:,.1f}")


def _is_chosen(one: CandidateView, chosen: RankNameView | None) -> bool:
    return chosen is not None and (one.worker, one.dp_rank) == (chosen.worker, chosen.dp_rank)
