"""The device blocks of one rank: counted references, names of what is in them, and who is taken next.

Blocks that nobody refers to are free, whether there is something readable in them or not. They are taken
from the front of one queue:

    front  [nothing in it] … [longest unused: tail of a prompt, …, its head] … [tail, …, head]  back

A request gives its blocks back tail first, so that a prompt is evicted from its end. A block with a name
that is taken loses it, which is announced. One name may be in several blocks; each is announced, and goes,
on its own.

Source: vLLM 0.32.0 block pool, as recorded (``llama3_small_evict``, ``llama3_duplicates``).
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from worker.blocks.block_events import BlockEvents
from worker.blocks.block_name import BlockName


class Block:
    """Handle of one physical block.

    Attributes:
        num_refs: requests that use it.
        name: of the full block in it; None = nothing that can be found again.
    """

    __slots__ = ("index", "name", "num_refs")

    def __init__(self, index: int) -> None:
        self.index = index
        self.num_refs = 0
        self.name: BlockName | None = None


class BlockPool:
    """A fixed number of blocks."""

    def __init__(self, num_blocks: int, events: BlockEvents) -> None:
        self._events = events
        self._blocks = tuple(Block(index) for index in range(num_blocks))
        self._free = OrderedDict((block.index, block) for block in self._blocks)
        self._named: dict[bytes, dict[int, Block]] = {}
        self.num_evicted = 0

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def num_free(self) -> int:
        """Blocks that nobody refers to."""
        return len(self._free)

    def find(self, digest: bytes) -> Block | None:
        """The block of this name; of several, the one that has had it longest."""
        copies = self._named.get(digest)
        return next(iter(copies.values())) if copies else None

    def use(self, blocks: Sequence[Block]) -> None:
        """Refer to blocks that were found."""
        for block in blocks:
            if block.num_refs == 0:
                del self._free[block.index]
            block.num_refs += 1

    def take(self, num_blocks: int) -> list[Block]:
        """Take free blocks, evicting what is in them. O(taken).

        Raises:
            ValueError: fewer are free.
        """
        if num_blocks > len(self._free):
            raise ValueError(f"{num_blocks} blocks taken, {len(self._free)} free")
        taken = [self._free.popitem(last=False)[1] for _ in range(num_blocks)]
        for block in taken:
            block.num_refs = 1
            if block.name is not None:
                self.num_evicted += 1
                self._events.removed(block.name.digest)
                self._forget(block, block.name)
        return taken

    def fill(self, blocks: Sequence[Block], names: Sequence[BlockName]) -> None:
        """Consecutive blocks of one request are full: they can be found by these names."""
        for block, name in zip(blocks, names, strict=True):
            assert block.name is None, "a block has two names"
            block.name = name
            self._named.setdefault(name.digest, {})[block.index] = block
        self._events.stored(names)

    def give(self, blocks: Sequence[Block]) -> None:
        """One request no longer refers to these, its own, in its order; they are given back from the end."""
        for block in reversed(blocks):
            if block.num_refs == 0:
                raise ValueError(f"block {block.index} is given back, and nobody has it")
            block.num_refs -= 1
            if block.num_refs == 0:
                self._free[block.index] = block
                if block.name is None:
                    self._free.move_to_end(block.index, last=False)

    def clear(self) -> None:
        """Forget what is in every block.

        Raises:
            ValueError: some are in use.
        """
        if self.num_free < len(self._blocks):
            raise ValueError(f"{len(self._blocks) - self.num_free} blocks are in use")
        for block in self._blocks:
            block.name = None
        self._named.clear()
        self._events.cleared()

    def digests(self) -> Iterator[bytes]:
        """Every name that can be found."""
        return iter(self._named)

    def check(self) -> None:
        """Verify that the free are those that nobody has, and that each name leads to its block."""
        unused = {block.index for block in self._blocks if block.num_refs == 0}
        assert unused == set(self._free), f"free: {set(self._free)}, unused: {unused}"
        named = {block.index for block in self._blocks if block.name is not None}
        found = {index: digest for digest, copies in self._named.items() for index in copies}
        assert named == set(found), f"named: {named}, found: {set(found)}"
        for index, digest in found.items():
            name = self._blocks[index].name
            assert name is not None, f"block {index} has no name"
            assert name.digest == digest, f"block {index} is found by another's name"

    def _forget(self, block: Block, name: BlockName) -> None:
        copies = self._named[name.digest]
        del copies[block.index]
        if not copies:
            del self._named[name.digest]
        block.name = None
