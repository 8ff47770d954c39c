"""Blocks whose parent is unknown: kept until it is heard of, never counted as a prompt start.

A piece waits under its parent's engine hash. Pieces form a forest of their own, for children of a parked
block wait under it. At the bounds the oldest pieces go.
"""

from collections import OrderedDict
from collections.abc import Sequence

from indexer.fleet_share import UNSHARED, FleetShare
from indexer.identity import Piece
from protocol import EngineHash


class Parking:
    """Parked pieces of one cache group of one rank, at most a share of ``limit`` blocks and of ``max_bytes`` of tokens."""

    def __init__(self, limit: int, max_bytes: int, share: FleetShare = UNSHARED) -> None:
        self._share = share
        self._limit = limit
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._pieces: OrderedDict[int, Piece] = OrderedDict()  # by id(), oldest first
        self._children: dict[EngineHash, list[Piece]] = {}
        self._piece_of: dict[EngineHash, Piece] = {}
        self._by_local: dict[int, Piece] = {}
        self.num_blocks = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __contains__(self, block_hash: EngineHash) -> bool:
        return block_hash in self._piece_of

    def closes_cycle(self, piece: Piece) -> bool:
        """Whether the piece's parent descends from the piece itself; O(depth of the forest)."""
        own = set(piece.hashes)
        if own.isdisjoint(self._children):
            return False
        parent = piece.parent
        seen: set[int] = set()
        while parent is not None and parent in self._piece_of:
            above = self._piece_of[parent]
            if id(above) in seen:
                break
            seen.add(id(above))
            parent = above.parent
            if parent in own:
                return True
        return False

    def park(self, piece: Piece) -> int:
        """Keep a piece until its parent is known.

        Returns:
            Number of blocks that had to go for it.
        """
        assert piece.parent is not None
        self._pieces[id(piece)] = piece
        self._children.setdefault(piece.parent, []).append(piece)
        for block_hash in piece.hashes:
            self._piece_of[block_hash] = piece
        local = piece.first_local()
        if local is not None:
            self._by_local[local] = piece
        self.num_blocks += len(piece.hashes)
        self._num_bytes += len(piece.tokens)
        return self.settle()

    def settle(self) -> int:
        """Keep no more than the share, which may have shrunk; returns how many blocks had to go. O(those)."""
        limit, max_bytes = self._share.of(self._limit), self._share.of(self._max_bytes)
        dropped = 0
        while self.num_blocks > limit or self._num_bytes > max_bytes:
            oldest = next(iter(self._pieces.values()))
            self._remove(oldest)
            dropped += len(oldest.hashes)
        return dropped

    def take(self, parent: EngineHash) -> Sequence[Piece]:
        """Remove and return what waits under ``parent``, oldest first."""
        pieces = tuple(self._children.get(parent, ()))
        for piece in pieces:
            self._remove(piece)
        return pieces

    def starting_with(self, local: int) -> Piece | None:
        """The last piece parked whose first block has this unchained hash."""
        return self._by_local.get(local)

    def pieces(self) -> list[Piece]:
        """What is parked, oldest first."""
        return list(self._pieces.values())

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()
        self._children.clear()
        self._piece_of.clear()
        self._by_local.clear()
        self.num_blocks = self._num_bytes = 0

    def check(self) -> None:
        """Verify the invariants."""
        pieces = list(self._pieces.values())
        assert self.num_blocks == sum(len(piece.hashes) for piece in pieces) <= self._limit
        assert self._num_bytes == sum(len(piece.tokens) for piece in pieces) <= self._max_bytes
        waiting = [piece for pieces in self._children.values() for piece in pieces]
        assert sorted(map(id, waiting)) == sorted(map(id, pieces))
        assert all(self._children.values()), "nothing waits under a parent"
        assert all(id(piece) in self._pieces for piece in self._piece_of.values())
        assert all(id(piece) in self._pieces for piece in self._by_local.values())

    def _remove(self, piece: Piece) -> None:
        assert piece.parent is not None
        del self._pieces[id(piece)]
        siblings = self._children[piece.parent]
        siblings.remove(piece)
        if not siblings:
            del self._children[piece.parent]
        for block_hash in piece.hashes:
            if self._piece_of.get(block_hash) is piece:
                del self._piece_of[block_hash]
        local = piece.first_local()
        if local is not None and self._by_local.get(local) is piece:
            del self._by_local[local]
        self.num_blocks -= len(piece.hashes)
        self._num_bytes -= len(piece.tokens)
