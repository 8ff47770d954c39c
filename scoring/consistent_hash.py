"""Consistent hashing with bounded load: one key, one rank, whatever the ranks hold.

Every pair of key and rank has a weight of its own, and the key belongs to the rank of the greatest
(rendezvous hashing). So a rank that comes takes its share from all others alike, one that goes leaves
its share to all others alike, nothing else moves, and there is no ring to keep. Routers that know
nothing of each other agree.

    rank     weight of the key    in flight    bound 8
    w2             0.93               8        full: the request goes on
    w0             0.71               3        takes it
    w1             0.20               0
"""

from math import ceil
from random import Random

from xxhash import xxh3_64_intdigest

from scoring.brain import PlanRequest
from scoring.decision import Reason
from scoring.policy import Stateless
from scoring.ranking import Option, Ranking, load_ms, ranked
from scoring.weighing import Weighing

PREFIX_TOKENS = 256
"""What of a prompt makes its key where the request names no session."""

LOAD_FACTOR = 1.25
"""Requests on a rank, over the mean of all that could take this one, from which it counts as full."""

FREE_REQUESTS = 8
"""A rank with fewer requests is never full: an engine has them in one batch."""

_TOKEN_BYTES = 4


class ConsistentHash(Stateless):
    """The rank that the request's key belongs to, or the next by weight where that one is full."""

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By weight; a request that has no key goes by load."""
        key = hash_key(weighing.request)
        if key is None:
            return Ranking(ranked(weighing.options, load_ms, rng)[0], Reason.LOAD_ONLY)
        options = sorted(weighing.options, key=lambda option: _weight(key, option), reverse=True)
        bound = most_requests(options)
        chosen = next(index for index, one in enumerate(options) if one.in_flight < bound)
        if chosen == 0:
            return Ranking(options, Reason.HASHED)
        options.insert(0, options.pop(chosen))
        return Ranking(options, Reason.HASHED_IS_FULL)


def hash_key(request: PlanRequest) -> int | None:
    """Of the session, else of the prompt's first `PREFIX_TOKENS`; None where neither is known."""
    if request.session is not None:
        return xxh3_64_intdigest(request.session.encode("utf-8", "surrogatepass"))
    if not request.tokens:
        return None
    return xxh3_64_intdigest(request.tokens[: PREFIX_TOKENS * _TOKEN_BYTES])


def most_requests(options: list[Option]) -> int:
    """From how many requests on a rank is full; there is always one that has fewer."""
    wanted = sum(option.in_flight for option in options) + 1
    return max(FREE_REQUESTS, ceil(LOAD_FACTOR * wanted / len(options)))


def _weight(key: int, option: Option) -> int:
    worker, dp_rank = option.row.rank
    return xxh3_64_intdigest(f"{dp_rank}/{worker}".encode(), key)
