"""Which block precedes a block, as served prompts tell it.

A rank that was joined late publishes children of blocks nobody announced to us. Their parent is an engine
hash without a meaning, until a served prompt shows the same tokens after a block that we know by key. A
block that follows two different ones says nothing.

Most ranks never have such a child, and hashing costs far more than keeping a prompt: prompts are hashed when
the first question comes.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

from indexer.block_index import Ref
from indexer.prompt_blocks import PromptBlocks


class ParentLinks:
    """Unchained hash of a block → the block before it, at most ``limit``; the oldest go first.

    Prompts not hashed yet are kept from their first new block to the last: the last ones that have
    ``limit`` blocks together, and at least one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parents: OrderedDict[int, Ref | None] = OrderedDict()
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
        while self._num_waiting - len(self._waiting[0][1]) >= self._limit:
            self._num_waiting -= len(self._waiting.popleft()[1])

    def add(self, local: int, parent: Ref) -> None:
        """A prompt has this block after ``parent``."""
        if local in self._parents:
            if self._parents[local] != parent:
                self._parents[local] = None
            return
        self._parents[local] = parent
        if len(self._parents) > self._limit:
            self._parents.popitem(last=False)

    def get(self, local: int) -> Ref | None:
        """The one block that precedes it; None where it is unknown or not one."""
        self._hash_waiting()
        return self._parents.get(local)

    def clear(self) -> None:
        """Forget everything."""
        self._parents.clear()
        self._waiting.clear()
        self._num_waiting = 0

    def _hash_waiting(self) -> None:
        for blocks, refs, chosen in self._waiting:
            for i in chosen:
                self.add(blocks.local(i), refs[i])
        self._waiting.clear()
        self._num_waiting = 0
