"""One request as it goes on to a worker."""

from collections.abc import Sequence
from typing import NamedTuple

from router.headers import RawHeader
from router.made_ids import MadeIds
from router.priority import PriorityRight
from scoring.brain import PlanRequest


class Forward(NamedTuple):
    """One request as it goes on to a worker.

    Attributes:
        plan: what the brain is asked.
        target: raw path and query.
        may_repeat: sending it twice does no harm.
        reads_usage: the answer's end is read for what the engine reports.
        started_at: when the client's request came, monotonic seconds.
        shows_score: the client is told how its rank was weighed.
        priority: what the client's key allows; None where it came without one.
        means_model: a model that nobody serves is unknown, not a word that means something else on this path.
        made: learns the id that the answer gives to what was made; None where nothing is.
    """

    plan: PlanRequest
    method: str
    target: str
    headers: Sequence[RawHeader]
    body: bytes
    may_repeat: bool
    reads_usage: bool
    started_at: float
    shows_score: bool = False
    means_model: bool = True
    made: MadeIds | None = None
    priority: PriorityRight | None = None
