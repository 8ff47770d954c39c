"""The claims of one ledger out of the lines of a dump, each checked against what it refers to as it comes."""

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
    SpaceLine,
    engine_hash,
)
from indexer.group_ledger import GroupLedger
from indexer.identity import Piece
from indexer.ledger import RankLedger
from indexer.slot_bits import GPU
from protocol import BlockKey, EngineHash, KeySpace, Tier, TokenBytes

Content = SpaceLine | GroupLine | HeldLine | NamesLine | ParkedLine | ObservedLine


class LedgerLoad:
    """Fills a ledger of which events have told nothing.

    Args:
        model: of its key spaces.
        max_claims: of all ranks together; of one dump, no more key spaces either.
    """

    def __init__(
        self, ledger: RankLedger, model: str, index: BlockIndex, max_claims: int, now: float
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._index = index
        self._max_claims = max_claims
        self._now = now
        self._spaces: dict[int, KeySpace] = {}
        self._group: GroupLedger | None = None
        self._marked_at = -math.inf

    def add(self, line: Content) -> None:
        """One line more; O(its blocks).

        Raises:
            DumpError: it does not fit what came before.
        """
        try:
            self._add(line)
        finally:
            self._index.drop_unused()
            self._ledger.claims.settle_stores(self._now)

    def expect_held(self, num_hashes: int) -> None:
        """So many are to be there.

        Raises:
            DumpError: there are not.
        """
        held = self._ledger.num_held
        if held != num_hashes:
            raise DumpError(f"{held} hashes are there, not {num_hashes}")

    def _add(self, line: Content) -> None:
        match line:
            case SpaceLine():
                self._add_space(line)
            case GroupLine():
                self._group = self._ledger.restore_group(line.index)
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
            self._model, line.adapter, line.salt, line.block_size, line.is_eagle
        )

    def _add_held(self, group: GroupLedger, line: HeldLine) -> None:
        tier, hashes = TIERS[line.tier], [engine_hash(wire) for wire in line.hashes]
        if line.space is None:
            self._hold_unnamed(group, tier, hashes, is_unkeyable=line.is_unkeyable)
        else:
            group.store(tier, hashes, self._refs(line.space, line.keys, line.hashes))
        if self._index.clock.num_held > self._max_claims:
            raise DumpError(f"more than {self._max_claims} claims")

    def _hold_unnamed(
        self, group: GroupLedger, tier: Tier, hashes: Sequence[EngineHash], *, is_unkeyable: bool
    ) -> None:
        """Hold hashes that the teller had no blocks for; here some may be known, as a pool's are by its ranks."""
        for block_hash in hashes if self._has_other_names else ():
            ref = group.ref_of(block_hash)
            if ref is not None:
                group.store(tier, [block_hash], [ref])
        group.restore_unnamed(tier, hashes, is_unkeyable=is_unkeyable)

    @property
    def _has_other_names(self) -> bool:
        return self._ledger.claims.other_names is not None

    def _add_observed(self, line: ObservedLine) -> None:
        refs = self._refs(line.space, line.keys, line.keys)
        marked_at = self._now - line.age_s
        if marked_at < self._marked_at:
            raise DumpError("evidence is out of order")
        self._marked_at = marked_at
        claims = self._ledger.claims
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
