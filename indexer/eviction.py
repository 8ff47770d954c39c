"""Which claims go when there are too many: the oldest of all ranks, pools, tiers and groups."""

import heapq
from collections.abc import Iterable
from typing import Protocol

from indexer.group_ledger import GroupLedger
from indexer.ledger import RankLedger
from protocol import Tier


class Holder(Protocol):
    """A rank or pool with claims."""

    @property
    def ledger(self) -> RankLedger:
        """Its claims."""

    def note_evicted(self, num_blocks: int) -> None:
        """So many claims were given up."""


def evict_oldest(books: Iterable[Holder], count: int, grain: int, now: float) -> None:
    """Give up so many of the oldest claims, or all. O(ranks + ``count``).

    Args:
        grain: how many of one tier of one rank go before the next oldest is looked for.
    """
    oldest: list[tuple[int, int, Holder, GroupLedger, Tier]] = []
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
