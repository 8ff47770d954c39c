"""Further blocks that a hash names: an engine may give blocks of two namespaces one hash.

The first block a hash names is where the hash is held; here are those beyond it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from indexer.block_index import Ref
from indexer.fleet_share import UNSHARED, FleetShare
from indexer.identity import ClaimSkip
from protocol import EngineHash, Tier

_MAX_OF_ONE = 8


class Namesakes:
    """Of one cache group: at most a share of ``limit`` hashes, and 8 further blocks of each; more are counted, not credited."""

    __slots__ = ("_limit", "_refs", "_share", "_skips")

    def __init__(self, limit: int, skips: Counter[ClaimSkip], share: FleetShare = UNSHARED) -> None:
        self._limit = limit
        self._share = share
        self._skips = skips
        self._refs: dict[tuple[Tier, EngineHash], list[Ref]] = {}

    def __len__(self) -> int:
        return len(self._refs)

    def add(self, tier: Tier, block_hash: EngineHash, ref: Ref) -> bool:
        """Let a hash that is held name one more block; False where it does so already, or at the bound."""
        refs = self._refs.get((tier, block_hash))
        if refs is None:
            if len(self._refs) >= self._share.of(self._limit):
                self._skips[ClaimSkip.NAMESAKE] += 1
                return False
            refs = self._refs[tier, block_hash] = []
        if ref in refs:
            return False
        if len(refs) >= _MAX_OF_ONE:
            self._skips[ClaimSkip.NAMESAKE] += 1
            return False
        refs.append(ref)
        return True

    def get(self, tier: Tier, block_hash: EngineHash) -> Sequence[Ref]:
        """The further blocks of a hash."""
        return self._refs.get((tier, block_hash), ())

    def pop(self, tier: Tier, block_hash: EngineHash) -> Sequence[Ref]:
        """The hash is no longer held: the further blocks it named."""
        return self._refs.pop((tier, block_hash), ())

    def of(self, tier: Tier) -> Iterator[tuple[EngineHash, Ref]]:
        """Hashes of a tier, each with every further block. O(all namesakes)."""
        for (at, block_hash), refs in self._refs.items():
            if at is tier:
                yield from ((block_hash, ref) for ref in refs)

    def rows(self) -> list[tuple[Tier, EngineHash, Sequence[Ref]]]:
        """A copy of all."""
        return [(*at, list(refs)) for at, refs in self._refs.items()]

    def clear(self, tier: Tier) -> None:
        """Nothing is held on the tier any more. O(all namesakes)."""
        self._refs = {at: refs for at, refs in self._refs.items() if at[0] is not tier}

    def give_up(self) -> list[list[Ref]]:
        """Nothing is held on any tier; returns the further blocks of each hash."""
        given_up, self._refs = list(self._refs.values()), {}
        return given_up

    def check(self, tiers: Mapping[Tier, Mapping[EngineHash, Ref | None]]) -> None:
        """Verify the bounds, and that each hash is held and names every block once."""
        assert len(self._refs) <= self._limit
        for (tier, block_hash), refs in self._refs.items():
            first = tiers[tier][block_hash]
            assert first is not None, f"namesakes of what is not held: {refs}"
            assert 0 < len(refs) <= _MAX_OF_ONE
            assert len({first, *refs}) == len(refs) + 1, f"a namesake twice: {first}, {refs}"
