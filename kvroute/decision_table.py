"""A decision record as tables for people, and in one sentence.

Numbers are always whole; the names of ranks give way, in their middle. What does not fit beside them goes into a
second table under the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from kvroute.unrouted import why_unrouted
from loadgen import CandidateView, DecisionView, RankNameView

_SHORT = {"load_back": "back"}
_SOURCE = "L3 by"
_SHORTEST_NAME = 20
_GAPS = (2, 1)


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cells: tuple[str, ...]
    is_number: bool = True

    @property
    def width(self) -> int:
        """Of the widest cell."""
        return max(map(len, (self.heading, *self.cells)))


def decision_tables(decision: DecisionView, width: int) -> list[Table]:
    """One row a candidate, best first; one column a cost term that any of them has.

    Args:
        width: of the terminal, in characters.
    """
    names = [f"{one.worker}/{one.dp_rank}" for one in decision.candidates]
    marks = tuple("→" if _is_chosen(one, decision.chosen) else "" for one in decision.candidates)
    name_width = min(max(map(len, ("rank", *names))), _SHORTEST_NAME)
    columns = _columns(decision)
    packed = {gap: _sheets(columns, width - 1 - gap - name_width, gap) for gap in _GAPS}
    gap, sheets = min(packed.items(), key=lambda item: len(item[1]))
    room = [width - 1 - gap - sum(gap + column.width for column in sheet) for sheet in sheets]
    ranks = shortened(names, max(8, min(room)))
    return [_table(marks, ranks, sheet, gap) for sheet in sheets]


def caption(decision: DecisionView) -> str:
    """What the columns mean that are there."""
    headings = {column.heading for column in _columns(decision)}
    back = "; back: host to GPU" if _SHORT["load_back"] in headings else ""
    source = f"; {_SOURCE}: what says so" if _SOURCE in headings else ""
    return (
        f"cost and its terms: ms, without terms that are 0 for all{back}. "
        f"L1, L2, L3: blocks on GPU, in pinned host memory, in storage{source}. "
        "matched: tokens. load: requests in flight/prompt tokens queued."
    )


def reading(decision: DecisionView) -> str:
    """What was decided, and on what, in one paragraph."""
    prompt = _prompt(decision)
    where = "nobody"
    if decision.chosen is not None:
        where = f"{decision.chosen.worker}/{decision.chosen.dp_rank}"
    counts = [f"{count} {reason}" for reason, count in decision.excluded.items()]
    others = f" Not shown or not eligible: {', '.join(counts)}." if counts else ""
    learned = sorted(name for name, source in decision.rates.items() if source == "learned")
    rates = f" Learned rates: {', '.join(learned)}." if learned else ""
    return (
        f"{prompt} of {decision.model} ({decision.api}) would go to {where}: {decision.reason}, "
        f"policy {decision.policy}.{others}{rates}{_by_load(decision)}"
    )


def _prompt(decision: DecisionView) -> str:
    tokens = decision.prompt_tokens
    if tokens is None:
        return "A prompt of unknown length"
    told = f"{tokens:,} prompt tokens"
    return f"{told}, cut before its first image," if decision.is_cut else told


def _by_load(decision: DecisionView) -> str:
    reason = decision.unrouted_by
    return "" if reason is None else f" By load alone: {why_unrouted(reason)}."


def shortened(names: Sequence[str], width: int) -> list[str]:
    """The names with an ellipsis in the middle of those that are too long.

    Most of the room goes to the front, or to the end where only that keeps the names apart.
    """
    room = width - 1
    cut = list(names)
    for tail in (room // 3, room // 2, room * 2 // 3, room // 6):
        cut = [_cut(name, width, tail) for name in names]
        if len(set(cut)) == len(set(names)):
            return cut
    return cut


def _cut(name: str, width: int, tail: int) -> str:
    if len(name) <= width:
        return name
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _columns(decision: DecisionView) -> list[_Column]:
    """Evidence, predictions and exclusions have a column only where there are any."""
    candidates = decision.candidates

    def column(
        heading: str, cell: Callable[[CandidateView], str], *, is_number: bool = True
    ) -> _Column:
        return _Column(heading, tuple(map(cell, candidates)), is_number)

    columns = [column("cost", lambda one: _ms(one.cost_ms))]
    terms = dict.fromkeys(name for one in candidates for name, ms in one.terms_ms.items() if ms)
    columns += [column(_SHORT.get(name, name), _term(name)) for name in terms]
    columns += [
        column("L1", lambda one: f"{one.gpu_blocks:,}"),
        column("L2", lambda one: f"{one.host_pinned_blocks:,}"),
        column("L3", lambda one: f"{one.storage_blocks:,}"),
    ]
    if any(one.storage_source for one in candidates):
        columns.append(column(_SOURCE, lambda one: one.storage_source or "", is_number=False))
    if any(one.observed_blocks for one in candidates):
        columns.append(column("observed", lambda one: f"{one.observed_blocks:,}"))
    if any(one.predicted_blocks for one in candidates):
        columns.append(column("predicted", lambda one: f"{one.predicted_blocks:,}"))
    columns += [
        column("matched", lambda one: f"{one.matched_tokens:,}"),
        column("load", lambda one: f"{one.in_flight:,}/{one.queued_prefill_tokens:,}"),
        column("trust", lambda one: one.trust, is_number=False),
    ]
    if any(one.excluded_by for one in candidates):
        columns.append(column("excluded by", lambda one: one.excluded_by or "", is_number=False))
    return columns


def _term(name: str) -> Callable[[CandidateView], str]:
    return lambda one: _ms(one.terms_ms.get(name))


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _sheets(columns: Sequence[_Column], width: int, gap: int) -> list[list[_Column]]:
    """The columns in as many tables as they need; a table has one column at least."""
    sheets: list[list[_Column]] = [[]]
    left = width
    for column in columns:
        if sheets[-1] and gap + column.width > left:
            sheets.append([])
            left = width
        sheets[-1].append(column)
        left -= gap + column.width
    return sheets


def _table(
    marks: Sequence[str], names: Sequence[str], columns: Sequence[_Column], gap: int
) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column("", width=1)
    table.add_column("rank", no_wrap=True)
    for column in columns:
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            no_wrap=True,
            min_width=column.width,
        )
    cells = (column.cells for column in columns)
    for row in zip(marks, names, *cells, strict=True):
        table.add_row(*row)
    return table


def _is_chosen(one: CandidateView, chosen: RankNameView | None) -> bool:
    return chosen is not None and (one.worker, one.dp_rank) == (chosen.worker, chosen.dp_rank)
