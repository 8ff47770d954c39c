"""The cache groups of one rank: which of them make claims, and which group an event speaks of.

Engines with several kinds of attention keep a cache a kind. A group that keeps some blocks only (a sliding
window, a state) says nothing about prefixes. An engine may name the kind of a group in one event and not in
the next, and the group in stores but not in removals, nor in stores without tokens.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from indexer.group_ledger import GroupLedger
from indexer.identity import ClaimSkip, makes_prefix_claims
from protocol import BlockStored

_Label = tuple[int | None, str | None, int | None]


class CacheGroups:
    """At most ``limit`` groups that make claims, and as many that do not; events of others are counted.

    Args:
        new_group: makes an empty ledger.

    Attributes:
        claiming: ledgers by the index of the group, None where events name none.
        sparse: groups that make no claims.
    """

    def __init__(
        self, new_group: Callable[[], GroupLedger], skips: Counter[ClaimSkip], limit: int
    ) -> None:
        self._new_group = new_group
        self._skips = skips
        self._limit = limit
        self._by_label: dict[_Label, GroupLedger] = {}
        self.claiming: dict[int | None, GroupLedger] = {}
        self.sparse: set[int] = set()

    def of(self, event: BlockStored) -> GroupLedger | None:
        """The ledger of a store's cache group; None where the group makes no claims."""
        if event.group_idx is None and not event.token_ids and (spoken_of := self._named_in(event)):
            return spoken_of
        label = (event.group_idx, event.spec_kind, event.sliding_window)
        group = self._by_label.get(label)
        if group is None:
            group = self._identify(*label)
            if group is not None and len(self._by_label) < 4 * self._limit:
                self._by_label[label] = group
        return group

    def of_removal(self, index: int | None) -> Sequence[GroupLedger]:
        """The ledgers a removal speaks of. Engines may name the group in one kind of event only."""
        if index is None:
            return tuple(self.claiming.values())
        group = self.claiming.get(index)
        if group is not None:
            return (group,)
        unlabelled = self.claiming.get(None)
        return () if unlabelled is None else (unlabelled,)

    def open(self, index: int | None) -> GroupLedger | None:
        """The ledger of a group that makes claims, made where it is missing; None at the bound."""
        group = self.claiming.get(index)
        if group is None and len(self.claiming) < self._limit:
            group = self.claiming[index] = self._new_group()
        return group

    def clear(self) -> None:
        """Forget every group."""
        self.claiming.clear()
        self.sparse.clear()
        self._by_label.clear()

    def check(self) -> None:
        """Verify the bounds, and that labels name ledgers that are there."""
        assert len(self.claiming) <= self._limit
        assert len(self.sparse) <= self._limit
        assert len(self._by_label) <= 4 * self._limit
        known = set(map(id, self.claiming.values()))
        assert all(id(group) in known for group in self._by_label.values())

    def _named_in(self, event: BlockStored) -> GroupLedger | None:
        """The labelled group that a store without tokens and label is about: one that names its blocks, else any.

        None where there is no such group, and where some groups keep some blocks only: it may be about those.
        """
        if self.sparse:
            return None
        labelled = [group for index, group in self.claiming.items() if index is not None]
        knowing = (
            g for g in labelled if any(g.ref_of(one) is not None for one in event.block_hashes)
        )
        return next(knowing, labelled[0] if labelled else None)

    def _identify(
        self, index: int | None, kind: str | None, sliding_window: int | None
    ) -> GroupLedger | None:
        group = self.claiming.get(index)
        if kind is None and (group is not None or index in self.sparse):
            is_claiming: bool | None = group is not None
        else:
            is_claiming = makes_prefix_claims(kind, sliding_window)
        if is_claiming:
            group = self.open(index)
            if group is None:
                self._skips[ClaimSkip.TOO_MANY_GROUPS] += 1
            return group
        unknown = is_claiming is None
        self._skips[ClaimSkip.UNKNOWN_GROUP_KIND if unknown else ClaimSkip.SPARSE_GROUP] += 1
        if index is not None and group is None and len(self.sparse) < self._limit:
            self.sparse.add(index)
        return None
