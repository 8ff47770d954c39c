"""Which blocks a store speaks of: by their own hashes, or by the chain from the block before.

hashes known        the blocks they name, unless the store is of another namespace
no parent           the start of a prompt
parent known        placed after it
parent unkeyable    so are they
parent unknown      parked under it, until an event or a served prompt says which block it is
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from indexer.block_index import BlockIndex, Ref
from indexer.group_ledger import GroupLedger
from indexer.identity import ClaimSkip, Piece, read_namespace, read_piece
from indexer.parent_links import ParentLinks
from indexer.placement import Placement
from protocol import BlockStored, EngineHash, Tier


class Lineage:
    """Of the blocks of one rank. Keeps nothing but how they are placed, and what served prompts tell.

    Attributes:
        placement: where blocks lie.
        links: which block precedes which, as far as served requests tell; names unknown parents.
        has_guessed: some block may rest on such a name, which is wrong where other tokens precede the same ones.
    """

    __slots__ = ("_index", "_names_every_salt", "_skips", "has_guessed", "links", "placement")

    def __init__(
        self,
        index: BlockIndex,
        model: str,
        skips: Counter[ClaimSkip],
        max_links: int,
        *,
        names_every_salt: bool,
    ) -> None:
        self._index = index
        self._skips = skips
        self._names_every_salt = names_every_salt
        self.placement = Placement(index, model, skips)
        self.links = ParentLinks(max_links, index.share)
        self.has_guessed = False

    def store(self, group: GroupLedger, tier: Tier, event: BlockStored) -> None:
        """Hold the event's blocks, whose tokens it names. O(blocks), and O(tokens) where they are not known."""
        hashes = event.block_hashes
        known = _known_refs(group, hashes)
        if known is not None and self._is_of_its_namespace(event, known[0]):
            group.store(tier, hashes, known)
        else:
            self._store_piece(group, tier, read_piece(event, self._skips))

    def name_waiting(self, group: GroupLedger, unchained: Iterable[int]) -> None:
        """Served prompts tell what precedes blocks of these unchained hashes: name the parents that are unknown."""
        for local in unchained:
            piece = group.parking.starting_with(local)
            if piece is not None:
                self._name_parent(group, piece, local)

    def _store_piece(self, group: GroupLedger, tier: Tier, piece: Piece) -> None:
        if piece.parent is None:
            group.store(tier, piece.hashes, self.placement.place(piece, None))
            return
        if piece.parent in piece.hashes:
            self._skips[ClaimSkip.SELF_PARENT] += len(piece.hashes)
            group.store(tier, piece.hashes, ())
            return
        parent = group.ref_of(piece.parent)
        if parent is not None:
            group.store(tier, piece.hashes, self.placement.place(piece, parent))
        elif group.is_unkeyable(piece.parent):
            self._skips[ClaimSkip.AFTER_UNIDENTIFIED] += len(piece.hashes)
            group.store(tier, piece.hashes, ())
        else:
            group.park(tier, piece)
            if self.links and (local := piece.first_local()) is not None:
                self._name_parent(group, piece, local)

    def _name_parent(self, group: GroupLedger, piece: Piece, local: int) -> None:
        """Name the unknown parent of a parked piece, if served requests say which block it is.

        Where an engine names a salt with a prompt's first block only, a child without one is anybody's as soon as
        salts are used at all.
        """
        if piece.salt is None and self._index.has_salts and not self._names_every_salt:
            return
        parent = self.links.get(local, piece.adapter, piece.salt)
        if parent is None or piece.parent is None or self._index.space_of(parent) is None:
            return
        if group.ref_of(piece.parent) is None:
            self.has_guessed = True
            group.name(piece.parent, parent)

    def _is_of_its_namespace(self, event: BlockStored, ref: Ref) -> bool:
        """Whether the event speaks of the namespace that its first block is known in."""
        space = self._index.space_of(ref)
        assert space is not None
        adapter, salt = read_namespace(event)
        known = space.key_space
        if event.parent_hash is None:
            return (adapter, salt) == (known.adapter, known.salt)
        return adapter in (None, known.adapter) and salt in (None, known.salt)  # else its parent's


def _known_refs(group: GroupLedger, hashes: Sequence[EngineHash]) -> Sequence[Ref] | None:
    """The blocks these hashes name already; None unless all of them do, so none is hashed twice."""
    refs: list[Ref] = []
    for block_hash in hashes:
        ref = group.ref_of(block_hash)
        if ref is None:
            return None
        refs.append(ref)
    return refs
