"""How much of a prefix each rank holds, and on which tiers: what other routers ask.

    block    0    1    2    3         a run of four blocks, three of them on GPU, two on HOST
    GPU      x         x    x
    HOST     x    x

Unlike a match, which counts each block on its fastest tier, this counts a block on every tier that has it. What
is in the rank's storage pool, on whatever ground, is on STORAGE.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from typing import NamedTuple

from indexer.block_index import BlockIndex
from indexer.identity import bounded_name
from indexer.match import Geometry
from indexer.prefix_walk import SharedBits, with_shared
from indexer.rank_book import RankBook
from indexer.slot_bits import (
    GPU,
    HELD,
    HOST,
    IN_POOL,
    INFERRED,
    OBSERVED,
    POOL_ANNOUNCED,
    POOL_EVENTS,
    STORAGE,
    STRIDE,
    WHOLE_SLOT,
)
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import BlockKey, KeySpace, Rank, Tier

_HELD = HELD | IN_POOL
_ON_TIER = ((Tier.GPU, GPU | OBSERVED), (Tier.HOST, HOST), (Tier.STORAGE, STORAGE | IN_POOL))
_GROUNDS = (  # the firmest first
    (STORAGE | POOL_ANNOUNCED, StorageSource.ANNOUNCED),
    (POOL_EVENTS, StorageSource.POOL_EVENTS),
    (INFERRED, StorageSource.INFERRED),
)


class HeldPrefix(NamedTuple):
    """The longest run of leading blocks that one rank holds, wherever they lie.

    Attributes:
        matched_blocks: its length.
        on_tier: blocks of it that lie on each tier; what evidence alone holds is on GPU.
        trust: how far the rank's claims can be believed.
        storage_source: the weakest that blocks of it on STORAGE rest on; None where it has none.
    """

    rank: Rank
    block_size: int
    matched_blocks: int
    on_tier: Mapping[Tier, int]
    trust: Trust
    storage_source: StorageSource | None

    @property
    def matched_tokens(self) -> int:
        """Length of the run, in tokens."""
        return self.matched_blocks * self.block_size


@dataclass(frozen=True, slots=True)
class PrefixQuery:
    """A prefix, by its tokens or by the keys of its blocks.

    Attributes:
        model: its own name, or an alias.
        keys_of: geometry → keys of the prefix's blocks, as ranks that use it keep them.
        block_size: in tokens; None where each rank answers at those that its events use.
    """

    model: str
    adapter: str | None
    salt: str | None
    keys_of: Callable[[Geometry], Sequence[BlockKey]]
    block_size: int | None = None


def answer(
    query: PrefixQuery,
    index: BlockIndex,
    books: Iterable[RankBook],
    pools_of: Callable[[Sequence[RankBook]], Sequence[SharedBits]],
    now: float,
) -> list[HeldPrefix]:
    """One answer a rank that serves the model, the longest where it uses several geometries; by rank.

    Args:
        pools_of: the storage pools of some ranks.
    """
    searches: dict[tuple[str, Geometry], list[RankBook]] = {}
    for book in books:
        if query.model == book.spec.model or query.model in book.spec.aliases:
            for geometry in book.lookups:
                if query.block_size in (None, geometry[0]):
                    searches.setdefault((book.spec.model, geometry), []).append(book)
    found: dict[Rank, HeldPrefix] = {}
    for (model, geometry), asked in searches.items():
        names = bounded_name(query.adapter), bounded_name(query.salt)
        key_space = KeySpace(model, *names, *geometry)
        slots = [book.slot for book in asked]
        keys, pools = query.keys_of(geometry), pools_of(asked)
        runs = held_prefixes(index, key_space, keys, slots, pools)
        for book in asked:
            run = runs.get(book.slot) or HeldRun()
            held = HeldPrefix(
                book.rank, geometry[0], run.length, run.on_tier, book.trust(now), run.storage_source
            )
            best = found.get(book.rank)
            if best is None or held.matched_tokens > best.matched_tokens:
                found[book.rank] = held
    return [found[rank] for rank in sorted(found)]


@dataclass(slots=True)
class HeldRun:
    """One slot's run so far, in blocks; ``grounds`` are the sources of what it has on STORAGE."""

    length: int = 0
    on_tier: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys(Tier, 0))
    grounds: set[StorageSource] = field(default_factory=set)

    def extend(self, bits: int, count: int) -> None:
        """So many blocks with these bits follow."""
        self.length += count
        for tier, on_tier in _ON_TIER:
            self.on_tier[tier] += count if bits & on_tier else 0
        firmest = next((source for ground, source in _GROUNDS if bits & ground), None)
        if firmest is not None:
            self.grounds.add(firmest)

    @property
    def storage_source(self) -> StorageSource | None:
        """The weakest of the grounds."""
        return next((one for _, one in reversed(_GROUNDS) if one in self.grounds), None)


def held_prefixes(
    index: BlockIndex,
    key_space: KeySpace,
    keys: Sequence[BlockKey],
    slots: Sequence[int],
    pools: Sequence[SharedBits] = (),
) -> dict[int, HeldRun]:
    """The run of each slot that has one. O(blocks + changes × slots).

    Args:
        pools: what each storage pool holds, every slot attached to it holds too.
    """
    space = index.find(key_space)
    if space is None:
        return {}
    found: dict[int, HeldRun] = {}
    alive = list(slots)
    for own, alike in groupby(map(space.masks.get, keys, repeat(0))):
        mask = with_shared(own, pools)
        bits_of = {slot: mask >> slot * STRIDE & WHOLE_SLOT for slot in alive}
        alive = [slot for slot in alive if bits_of[slot] & _HELD]
        if not alive:
            break
        count = sum(1 for _ in alike)
        for slot in alive:
            found.setdefault(slot, HeldRun()).extend(bits_of[slot], count)
    return found
