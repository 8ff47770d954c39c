"""One rank's claims out of the lines of a dump.

Lines are checked against what they refer to as they come; whoever loads them forgets the rank when one is
wrong, so that a rank is there as a whole or not at all.
"""

import base64
import binascii
import math
from collections.abc import Sequence

from indexer.block_index import BlockIndex, Ref
from indexer.dump_format import (
    TIERS,
    DumpError,
    GroupLine,
    HeldLine,
    NamesLine,
    ObservedLine,
    ParkedLine,
    RankEndLine,
    RankLine,
    SpaceLine,
    engine_hash,
)
from indexer.group_ledger import GroupLedger
from indexer.identity import Piece
from indexer.rank_book import RankBook
from indexer.slot_bits import GPU
from indexer.trust import Trust
from protocol import BlockKey, KeySpace, TokenBytes

LOADABLE = frozenset((Trust.EXACT, Trust.JOINED, Trust.DEGRADED))
"""Trust of ranks that are worth loading."""

RankContent = SpaceLine | GroupLine | HeldLine | NamesLine | ParkedLine | ObservedLine


class RankLoad:
    """Fills the books of one rank, of which events have told nothing; requests may have.

    Args:
        max_claims: of all ranks together; of one dump, no more key spaces either.
    """

    def __init__(
        self, book: RankBook, index: BlockIndex, line: RankLine, max_claims: int, now: float
    ) -> None:
        self.line = line
        self.book = book
        self._num_resets = book.resets.total()
        self._index = index
        self._max_claims = max_claims
        self._now = now
        self._spaces: dict[int, KeySpace] = {}
        self._group: GroupLedger | None = None
        self._marked_at = -math.inf
        geometries = {(size, is_eagle): count for size, is_eagle, count in line.geometries}
        book.ledger.restore_traits(
            line.sparse,
            geometries,
            speaks_extra_keys=line.speaks_extra_keys,
            has_placeholders=line.has_placeholders,
        )

    @property
    def is_whole(self) -> bool:
        """Whether nothing was forgotten of the books since the load began: their groups are those it fills."""
        return self._num_resets == self.book.resets.total()

    def add(self, line: RankContent) -> None:
        """One line more; O(its blocks).

        Raises:
            DumpError: it does not fit what came before.
        """
        try:
            self._add(line)
        finally:
            self._index.drop_unused()
            self.book.ledger.claims.settle_stores(self._now)

    def finish(self, line: RankEndLine) -> None:
        """The rank is whole.

        Raises:
            DumpError: it is not.
        """
        held = self.book.ledger.num_held
        if held != line.held:
            raise DumpError(f"{held} hashes are there, not {line.held}")
        is_doubted = self.line.trust is Trust.DEGRADED
        self.book.restored(self.line.seq, self._now, is_doubted=is_doubted)

    def _add(self, line: RankContent) -> None:
        match line:
            case SpaceLine():
                self._add_space(line)
            case GroupLine():
                self._group = self.book.ledger.restore_group(line.index)
                if self._group is None:
                    raise DumpError("too many cache groups")
            case HeldLine():
                self._add_held(self._open_group(), line)
            case NamesLine():
                refs = self._refs(line.space, line.keys, line.hashes)
                names = zip(map(engine_hash, line.hashes), refs, strict=True)
                self._open_group().restore_names(names)
            case ParkedLine():
                self._open_group().parking.park(_piece(line))
            case ObservedLine():
                self._add_observed(line)

    def _add_space(self, line: SpaceLine) -> None:
        if len(self._spaces) >= self._max_claims:
            raise DumpError(f"more than {self._max_claims} key spaces")
        self._spaces[line.number] = KeySpace(
            self.book.spec.model, line.adapter, line.salt, line.block_size, line.is_eagle
        )

    def _add_held(self, group: GroupLedger, line: HeldLine) -> None:
        tier, hashes = TIERS[line.tier], [engine_hash(wire) for wire in line.hashes]
        if line.space is None:
            group.restore_unnamed(tier, hashes, is_unkeyable=line.is_unkeyable)
        else:
            group.store(tier, hashes, self._refs(line.space, line.keys, line.hashes))
        if self._index.clock.num_held > self._max_claims:
            raise DumpError(f"more than {self._max_claims} claims")

    def _add_observed(self, line: ObservedLine) -> None:
        refs = self._refs(line.space, line.keys, line.keys)
        marked_at = self._now - line.age_s
        if marked_at < self._marked_at:
            raise DumpError("evidence is out of order")
        self._marked_at = marked_at
        claims = self.book.ledger.claims
        bits = claims.bits(refs)
        unheard = [ref for ref, held in zip(refs, bits, strict=True) if not held & GPU]
        claims.observed.restore(list(dict.fromkeys(unheard)), marked_at)

    def _refs(self, number: int, keys: Sequence[int], beside: Sequence[object]) -> Sequence[Ref]:
        space = self._spaces.get(number)
        if space is None:
            raise DumpError(f"no space {number}")
        if len(keys) != len(beside):
            raise DumpError(f"{len(keys)} keys for {len(beside)} hashes")
        return self._index.open(space).refs([BlockKey(key) for key in keys])

    def _open_group(self) -> GroupLedger:
        if self._group is None:
            raise DumpError("no cache group has begun")
        return self._group


def _piece(line: ParkedLine) -> Piece:
    try:
        tokens = base64.b64decode(line.tokens, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DumpError("tokens are no base64") from error
    num_tokens = line.num_known * line.block_size + (line.is_eagle and line.num_known > 0)
    is_sized = line.block_size > 0 or not line.num_known
    if len(tokens) != 4 * num_tokens or line.num_known > len(line.hashes) or not is_sized:
        raise DumpError("tokens do not fit the blocks")
    hashes = [engine_hash(wire) for wire in line.hashes]
    parent = engine_hash(line.parent)
    if parent in hashes or not hashes:
        raise DumpError("a parked piece has no parent of its own")
    return Piece(
        hashes,
        parent,
        TokenBytes(tokens),
        line.block_size,
        line.is_eagle,
        line.adapter,
        line.salt,
        dict(line.multimodal) or None,
        line.num_known,
    )
