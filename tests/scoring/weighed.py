"""Weighings made by hand: ranks that are so busy and hold so much, for a request."""

from collections.abc import Iterable, Sequence

from indexer.match import RankMatch
from indexer.trust import Trust
from scoring.brain import PlanRequest
from scoring.cost import NO_HIT, Hit, Price, PromptCost
from scoring.ranking import Option
from scoring.weighing import Weighing
from scoring.worker_table import RankRow, Resolution, WorkerEntry
from tests.scoring.fleet import BLOCK_SIZE, MODEL, rank, request, spec


def row(name: str) -> RankRow:
    """A rank that is in no table."""
    return RankRow(WorkerEntry(spec(name)), rank(name))


def option(
    row: RankRow,
    cost_ms: float = 0.0,
    *,
    load_ms: float = 0.0,
    held: int | None = 0,
    soon: int = 0,
    in_flight: int = 0,
    queued_tokens: int = 0,
) -> Option:
    """One option; ``held`` blocks on GPU and ``soon`` predicted ones, None where prefixes are not known."""
    match = None if held is None else RankMatch(Trust.EXACT, BLOCK_SIZE, held, 0, 0, soon)
    hit = NO_HIT if held is None else Hit(BLOCK_SIZE * (held + soon), 0, 0)
    price = Price(cost_ms, load_ms, 0, PromptCost(0, 0, 0, 0, 0, 0, hit))
    return Option(row, match, price, in_flight, queued_tokens)


def weighed(options: Iterable[Option], asked: PlanRequest | None = None) -> Weighing:
    """These options for a request, by default one whose prompt is not known."""
    found = list(options)
    rows = tuple(one.row for one in found)
    resolution = Resolution(MODEL, None, rows, rows)
    return Weighing(asked or request(None), resolution, None, None, found)


def names(options: Sequence[Option]) -> str:
    """Of one letter each."""
    return "".join(str(one.row.rank.worker) for one in options)
