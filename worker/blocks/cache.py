"""vLLM's cache of one rank: requests and the blocks they use.

A request uses a chain of blocks. Those at its head may be shared, found by name; the others are its own, full
ones with a name already, for a block is named when the step that fills it is planned:

    [shared] [shared] [own, full] [own, full] [own, half full]
    └──── hit ──────┘ └─── announced ──────┘

A hit leaves one token to be computed, at least: a prompt that ends where a block ends computes its last block
again, and has it under the same name as another one, which is announced again and removed on its own.
A request that is preempted gives its blocks back like one that ends; they stay cached until they are taken.

Source: vLLM 0.32.0 ``KVCacheManager``, as recorded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from protocol import EngineHash, EngineModel, KvEvent
from worker.blocks.block_events import BlockEvents, Medium
from worker.blocks.block_name import BlockChain, BlockName, engine_hash
from worker.blocks.config import BlockConfig
from worker.blocks.offload import Offload
from worker.blocks.pool import Block, BlockPool
from worker.request import EngineRequest, Usage
from worker.request import Sequence as Request
from worker.tree import StoragePage


@dataclass(slots=True)
class _Hold:
    """Blocks of one request, in order, of which the first ``num_named`` have names."""

    chain: BlockChain
    blocks: list[Block] = field(default_factory=list)
    num_named: int = 0


class BlockCache:
    """An ``EngineCache`` over a block pool."""

    def __init__(self, config: BlockConfig, model: EngineModel) -> None:
        self._config = config
        self._events = BlockEvents(config)
        self._pool = BlockPool(config.num_blocks, self._events)
        self._offload = Offload(config, model, self._events)
        self._holds: dict[str, _Hold] = {}
        self._num_reloaded = 0

    @property
    def capacity(self) -> int:
        """Device slots that one request can have at most."""
        return len(self._pool) * self._config.block_size

    @property
    def usage(self) -> float:
        """Share of the blocks that requests use; cached ones that nobody uses are free."""
        return 1 - self._pool.num_free / len(self._pool) if len(self._pool) else 0.0

    @property
    def is_settled(self) -> bool:
        """Whether no copy to CPU is on its way."""
        return self._offload.next_due() is None

    @property
    def num_events(self) -> int:
        """Events that wait for the next step."""
        return len(self._events)

    def slots_needed(self, num_tokens: int) -> int:
        """Device slots of so many tokens, in whole blocks."""
        return self._num_blocks(num_tokens) * self._config.block_size

    def arrive(self, sequence: Request, now: float) -> None:  # noqa: ARG002  # nothing comes from anywhere
        """A request is here."""
        request = sequence.request
        adapter = request.extra_key if request.extra_key in self._config.adapters else None
        self._holds[sequence.id] = _Hold(
            BlockChain(
                self._config.block_size,
                adapter=adapter,
                cache_salt=request.cache_salt,
                session_id=request.session_id,
            )
        )

    def is_ready(self, sequence: Request) -> bool:  # noqa: ARG002
        """Always: no admission waits for anything but room."""
        return True

    def admit(self, sequence: Request, headroom: int) -> bool:
        """Use the blocks that are found, on the device and then on CPU, and take blocks for all other tokens.

        Returns:
            False, with nothing taken, if fewer blocks are free.
        """
        hold = self._holds[sequence.id]
        names = hold.chain.names(sequence.tokens)
        reusable = names[: (len(sequence.tokens) - 1) // self._config.block_size]
        found = self._found(reusable)
        num_loaded = self._offload.num_found(reusable, len(found))
        num_missing = self._num_blocks(len(sequence.tokens)) - len(found)
        unused = sum(block.num_refs == 0 for block in found)
        if num_missing + self._num_blocks(headroom) > self._pool.num_free - unused:
            return False
        self._pool.use(found)
        hold.blocks, hold.num_named = list(found), len(found)
        self._load(hold, reusable[: len(found) + num_loaded])
        hold.blocks += self._pool.take(num_missing - num_loaded)
        self._tell(sequence, len(found), num_loaded)
        return True

    def plan(self, sequence: Request, num_tokens: int) -> bool:
        """Have blocks for so many tokens more, and name those that they fill.

        Returns:
            False if fewer blocks are free.
        """
        hold, size = self._holds[sequence.id], self._config.block_size
        length = sequence.computed + num_tokens
        if length > len(hold.blocks) * size:
            num_missing = self._num_blocks(length) - len(hold.blocks)
            if num_missing > self._pool.num_free:
                return False
            hold.blocks += self._pool.take(num_missing)
        first, last = hold.num_named, length // size
        if last > first:
            names = hold.chain.names(sequence.tokens)[:last]
            self._pool.fill(hold.blocks[first:last], names[first:])
            hold.num_named = last
            self._offload.ask(names, first)
        return True

    def extend(self, sequence: Request) -> None:
        """What was copied is there; full blocks had their names before."""
        sequence.copied_tokens = 0

    def retract(self, sequence: Request) -> None:
        """Give all blocks back, the last first."""
        hold = self._holds[sequence.id]
        self._pool.give(hold.blocks)
        hold.blocks, hold.num_named = [], 0
        sequence.computed = sequence.copied_tokens = 0

    def end(self, sequence: Request) -> None:
        """Give all blocks back, and forget the request."""
        if sequence.id in self._holds:
            self.retract(sequence)
            del self._holds[sequence.id]

    def note(self, now: float) -> None:
        """Start the copies to CPU of what has filled."""
        self._offload.begin(now)

    def settle(self, now: float) -> bool:
        """Complete the copies that are due, which frees no block."""
        self._offload.settle(now)
        return False

    def next_due(self) -> float | None:
        """When the next copy to CPU is complete."""
        return self._offload.next_due()

    def reset(self, *, keeps_host: bool = False) -> None:
        """Forget what is on the device, and on CPU too unless that is kept; either is announced as a clear
        of everything."""
        if not keeps_host:
            self._offload.clear()
        self._pool.clear()

    def take_events(self) -> list[KvEvent]:
        """Hand over what was recorded, in order."""
        return self._events.take()

    def lookup_pages(self, request: EngineRequest) -> list[StoragePage]:  # noqa: ARG002
        """None: there is no storage."""
        return []

    def residency(self) -> Mapping[str, Iterable[EngineHash]]:
        """Hashes by medium, as they are announced. O(blocks)."""
        return {
            Medium.GPU.value: self._hashes(self._pool.digests()),
            Medium.CPU.value: self._hashes(self._offload.digests()),
        }

    def pools(self) -> Mapping[str, int]:
        """Tokens of both pools."""
        size = self._config.block_size
        return {
            "gpu_capacity": self.capacity,
            "gpu_free": self._pool.num_free * size,
            "host_capacity": self._config.num_copies * self._config.offload_blocks * size,
            "host_free": (self._config.num_copies - len(self._offload))
            * self._config.offload_blocks
            * size,
        }

    def counters(self) -> dict[str, int]:
        """Blocks, and copies to CPU, since construction."""
        return {
            "blocks_evicted": self._pool.num_evicted,
            "blocks_reloaded": self._num_reloaded,
            "copies_stored": self._offload.num_stored,
            "copies_dropped": self._offload.num_dropped,
            "copies_refused": self._offload.num_refused,
        }

    def check(self) -> None:
        """Verify pool and copies, and that each reference to a block is a request's."""
        self._pool.check()
        self._offload.check()
        refs: dict[int, int] = {}
        num_refs: dict[int, int] = {}
        for hold in self._holds.values():
            assert hold.num_named <= len(hold.blocks), "names for blocks that are not there"
            for index, block in enumerate(hold.blocks):
                refs[block.index] = refs.get(block.index, 0) + 1
                num_refs[block.index] = block.num_refs
                assert (block.name is not None) == (index < hold.num_named), "a name out of order"
        assert refs == num_refs, f"used {refs}, referred to {num_refs}"
        assert len(refs) == len(self._pool) - self._pool.num_free, "a block that nobody has"

    def _found(self, names: Sequence[BlockName]) -> list[Block]:
        """Leading blocks that are on the device."""
        found = []
        for name in names:
            block = self._pool.find(name.digest)
            if block is None:
                break
            found.append(block)
        return found

    def _load(self, hold: _Hold, names: Sequence[BlockName]) -> None:
        """Bring the named blocks that follow those of the hold from CPU to the device."""
        self._offload.touch(names)
        missing = names[len(hold.blocks) :]
        if missing:
            blocks = self._pool.take(len(missing))
            self._pool.fill(blocks, missing)
            hold.blocks += blocks
            hold.num_named = len(hold.blocks)
            self._num_reloaded += len(missing)

    def _tell(self, sequence: Request, num_found: int, num_loaded: int) -> None:
        """What of the request is computed, and where it came from."""
        size = self._config.block_size
        sequence.computed = (num_found + num_loaded) * size
        sequence.copied_tokens = num_loaded * size
        if not sequence.num_preempted:
            sequence.usage = Usage(sequence.num_prompt, num_found * size, num_loaded * size)

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._config.block_size)

    def _hashes(self, digests: Iterable[bytes]) -> list[EngineHash]:
        is_whole = self._config.has_byte_hashes
        return [engine_hash(digest, is_whole=is_whole) for digest in digests]
