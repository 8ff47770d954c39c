"""Which block precedes a block, as served prompts tell it.

A rank that was joined late publishes children of blocks nobody announced to us. Their parent is an engine
hash without a meaning, until a served prompt of the same adapter and salt shows the same tokens after a
block that we know by key. A block that follows two different ones says nothing. Nor does one of a salted
prompt about a child that names no salt: some engines name it with a prompt's first block only (`indexer.lineage`).

Most ranks never have such a child, and hashing costs far more than keeping a prompt: prompts are hashed when
the first question comes.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TypeAlias

from indexer.block_index import Ref
from indexer.fleet_share import UNSHARED, FleetShare
from indexer.prompt_blocks import PromptBlocks

_Name: TypeAlias = tuple[str | None, str | None, int]


class ParentLinks:
    """Adapter, salt and unchained hash of a block → the block before it, at most ``limit``; the oldest go first.

    Prompts not hashed yet are kept from their first new block to the last: the last ones that have
    ``limit`` blocks together, and at least one.
    """

    def __init__(self, limit: int, share: FleetShare = UNSHARED) -> None:
        self._limit = limit
        self._share = share
        self._parents: OrderedDict[_Name, Ref | None] = OrderedDict()
        # each with the refs of the blocks before
        self._waiting: deque[tuple[PromptBlocks, Sequence[Ref], Sequence[int]]] = deque()
        self._num_waiting = 0

    def __bool__(self) -> bool:
        return bool(self._parents or self._waiting)

    def __len__(self) -> int:
        self._hash_waiting()
        return len(self._parents)

    def note(self, blocks: PromptBlocks, refs: Sequence[Ref], chosen: Sequence[int]) -> None:
        """These blocks of a prompt follow the ones before them. O(blocks), amortized.

        Args:
            refs: of all its blocks.
            chosen: indexes above 0, ascending.
        """
        if not chosen:
            return
        first, last = chosen[0], chosen[-1]
        part, parents = blocks.part(first, last + 1), refs[first - 1 : last]
        self._waiting.append((part, parents, [i - first for i in chosen]))
        self._num_waiting += len(parents)
        self.settle()

    def settle(self) -> None:
        """Keep no more than the share, which may have shrunk; O(what has to go)."""
        limit = self._share.of(self._limit)
        while self._waiting and self._num_waiting - len(self._waiting[0][1]) >= limit:
            self._num_waiting -= len(self._waiting.popleft()[1])
        while len(self._parents) > limit:
            self._parents.popitem(last=False)

    def get(self, local: int, adapter: str | None = None, salt: str | None = None) -> Ref | None:
        """The one block that precedes it; None where it is unknown or not one."""
        self._hash_waiting()
        return self._parents.get((adapter, salt, local))

    def clear(self) -> None:
        """Forget everything."""
        self._parents.clear()
        self._waiting.clear()
        self._num_waiting = 0

    def _hash_waiting(self) -> None:
        for blocks, refs, chosen in self._waiting:
            adapter, salt = blocks.key_space.adapter, blocks.key_space.salt
            for i in chosen:
                local = blocks.local(i)
                self._add((adapter, salt, local), refs[i])
                if salt is not None:
                    self._add((adapter, None, local), None)
        self._waiting.clear()
        self._num_waiting = 0

    def _add(self, name: _Name, parent: Ref | None) -> None:
        if name in self._parents:
            if self._parents[name] != parent:
                self._parents[name] = None
            return
        self._parents[name] = parent
        if len(self._parents) > self._share.of(self._limit):
            self._parents.popitem(last=False)
