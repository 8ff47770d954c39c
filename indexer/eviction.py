"""Which claims go when there are too many: the oldest of all ranks, tiers and groups."""

import heapq
from collections.abc import Iterable

from indexer.group_ledger import GroupLedger
from indexer.rank_book import RankBook
from protocol import Tier


def evict_oldest(books: Iterable[RankBook], count: int, grain: int, now: float) -> None:
    """Give up so many of the oldest claims, or all. O(ranks + ``count``).

    Args:
        grain: how many of one tier of one rank go before the next oldest is looked for.
    """
    oldest: list[tuple[int, int, RankBook, GroupLedger, Tier]] = []
    for book in books:
        for group in book.ledger.groups.values():
            for tier in Tier:
                stamp = group.oldest(tier)
                if stamp is not None:
                    oldest.append((stamp, len(oldest), book, group, tier))
    heapq.heapify(oldest)
    while count > 0 and oldest:
        _, number, book, group, tier = heapq.heappop(oldest)
        evicted = group.evict(tier, min(count, grain), now)
        book.note_evicted(evicted)
        count -= evicted
        stamp = group.oldest(tier)
        if stamp is not None:
            heapq.heappush(oldest, (stamp, number, book, group, tier))
