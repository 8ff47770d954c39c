"""From a piece and its parent to refs: in which key space the blocks lie, and under which keys."""

from collections import Counter
from collections.abc import Sequence

from indexer.block_index import KEY_MASK, BlockIndex, Ref, Space
from indexer.identity import ClaimSkip, Piece
from protocol import BlockKey, KeySpace, block_keys

_MAX_GEOMETRIES = 8


class Placement:
    """Places the pieces of one rank. Keeps no block, only which sizes the rank's events use.

    An engine uses one or two. The first eight are placed, blocks of others are counted and are not.

    Attributes:
        geometries: (block size, is_eagle) → blocks placed under it since the rank was forgotten.
    """

    def __init__(self, index: BlockIndex, model: str, skips: Counter[ClaimSkip]) -> None:
        self._index = index
        self._model = model
        self._skips = skips
        self.geometries: Counter[tuple[int, bool]] = Counter()

    def place(self, piece: Piece, parent: Ref | None) -> Sequence[Ref]:
        """Refs of the piece's leading blocks; those beyond cannot be identified.

        A child lies in its parent's namespace but for what its own event names. O(tokens).

        Args:
            parent: the block before, whose space still exists; None at the start of a prompt.
        """
        if piece.num_known == 0:
            return ()
        geometry = piece.block_size, piece.is_eagle
        if geometry not in self.geometries and len(self.geometries) >= _MAX_GEOMETRIES:
            self._skips[ClaimSkip.TOO_MANY_GEOMETRIES] += piece.num_known
            return ()
        space = self._space(piece, parent)
        if space is None:
            self._skips[ClaimSkip.BLOCK_SIZE_MIXED] += piece.num_known
            return ()
        key = None if parent is None else BlockKey(parent & KEY_MASK)
        keys = block_keys(
            piece.tokens,
            piece.block_size,
            parent=key,
            is_eagle=piece.is_eagle,
            multimodal=piece.multimodal,
        )
        self.geometries[geometry] += len(keys)
        return space.refs(keys)

    def _space(self, piece: Piece, parent: Ref | None) -> Space | None:
        adapter, salt = piece.adapter, piece.salt
        if parent is not None:
            space = self._index.space_of(parent)
            assert space is not None
            above = space.key_space
            if above.block_size != piece.block_size or above.is_eagle != piece.is_eagle:
                return None
            adapter = above.adapter if adapter is None else adapter
            salt = above.salt if salt is None else salt
            if adapter == above.adapter and salt == above.salt:
                return space
        return self._index.open(
            KeySpace(self._model, adapter, salt, piece.block_size, piece.is_eagle)
        )
