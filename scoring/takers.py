"""Takers: the ranks that a request may ever go to, whatever they are busy with at the moment."""

from protocol import Rank, num_tokens
from scoring.brain import PlanRequest
from scoring.worker_table import Resolution


def takers_of(request: PlanRequest, resolution: Resolution) -> frozenset[Rank]:
    """Ranks that serve the request and have not failed it: free or not, well or not.

    O(1) for most, which may go to every rank of their model, and have one set in common; else O(ranks).
    """
    tokens = None if request.is_approximate else request.tokens
    length = 0 if tokens is None else num_tokens(tokens)
    keeper, tried = request.keeper, request.excluded
    if keeper is None and not tried and length <= resolution.shortest:
        return resolution.ranks
    return frozenset(
        row.rank
        for row in resolution.rows
        if row.rank not in tried
        and (keeper is None or keeper == row.rank.worker)
        and length <= row.entry.longest
    )
