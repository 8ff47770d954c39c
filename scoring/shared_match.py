"""What a worker holds of a prompt where nobody can say which of its ranks will serve it.

The engine picks one, any of them as likely as the others. So each is taken to hold what they hold on average, tier
by tier: the worker's ranks are weighed as one, and differ in their load alone.
"""

from collections.abc import Sequence

from indexer.match import RankMatch
from indexer.storage_source import StorageSource
from scoring.rank_pin import RankPin
from scoring.worker_table import RankRow, WorkerEntry

_FIRMEST_FIRST = list(StorageSource)


def with_shared(rows: Sequence[RankRow], matches: Sequence[RankMatch], api: str) -> list[RankMatch]:
    """The matches, one a row, with those of workers that cannot be told the rank made one. O(rows)."""
    by_worker: dict[WorkerEntry, list[RankMatch]] = {}
    for row, match in zip(rows, matches, strict=True):
        if row.entry.pin(api) is RankPin.NONE:
            by_worker.setdefault(row.entry, []).append(match)
    shared = {entry: _average(found) for entry, found in by_worker.items()}
    return [shared.get(row.entry, match) for row, match in zip(rows, matches, strict=True)]


def _average(matches: Sequence[RankMatch]) -> RankMatch:
    """In blocks of the rank that holds the least, which also says how far it is to be trusted."""
    least = min(matches, key=lambda match: match.matched_tokens)
    size, num = least.block_size, len(matches)
    if num == 1 or least.matched_tokens == max(match.matched_tokens for match in matches):
        return least

    def blocks(counts: Sequence[int]) -> int:
        tokens = sum(count * match.block_size for count, match in zip(counts, matches, strict=True))
        return tokens // (num * size)

    storage = blocks([match.storage_blocks for match in matches])
    sources = [match.storage_source for match in matches if match.storage_source is not None]
    return RankMatch(
        least.trust,
        size,
        blocks([match.gpu_blocks for match in matches]),
        blocks([match.host_pinned_blocks for match in matches]),
        storage,
        blocks([match.predicted_blocks for match in matches]),
        blocks([match.observed_blocks for match in matches]),
        max(sources, key=_FIRMEST_FIRST.index) if storage else None,
    )
