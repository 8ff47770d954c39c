"""The CPU tier of the block pool: full blocks are copied down as they fill, and loaded back on a hit.

    fill ── begin ──▶ on its way ── settle ──▶ readable ── dropped, longest unused first ──▶ gone
               REMOVED of whom it displaces        STORED

A copy holds ``offload_blocks`` blocks, counted from the start of a prompt, and is known by its last. Within
one prompt the tail goes before the head. The order in which copies become complete says nothing: a child may
be announced before its parent.

At the bound: a copy that would displace none but copies on their way is not made, and counted.

Source: vLLM 0.32.0 CPU offloading, as recorded (``cpu_offload_selfdesc``).
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol import EngineModel
from worker.blocks.block_events import BlockEvents
from worker.blocks.block_name import BlockName
from worker.blocks.config import BlockConfig


@dataclass(frozen=True, slots=True)
class _Copy:
    names: tuple[BlockName, ...]
    ready_at: float


class Offload:
    """The copies of one rank, longest unused first."""

    def __init__(self, config: BlockConfig, model: EngineModel, events: BlockEvents) -> None:
        self._config = config
        self._model = model
        self._events = events
        self._copies: OrderedDict[bytes, _Copy] = OrderedDict()
        self._on_way: dict[bytes, _Copy] = {}
        self._asked: list[tuple[BlockName, ...]] = []
        self._link_free_at = 0.0
        self.num_stored = 0
        self.num_dropped = 0
        self.num_refused = 0

    def __len__(self) -> int:
        return len(self._copies)

    def num_found(self, names: Sequence[BlockName], start: int) -> int:
        """Readable blocks of a prompt from block ``start`` on, in whole copies from where the last ended."""
        size = self._config.offload_blocks
        at = start // size * size
        while at + size <= len(names):
            if not self._is_readable(names[at + size - 1].digest):
                break
            at += size
        return max(0, at - start)

    def ask(self, names: Sequence[BlockName], before: int) -> None:
        """Blocks of a prompt have filled, all but the first ``before``: those that complete a copy are to be
        made one, and all of the prompt's are in use."""
        if not self._config.num_copies:
            return
        size = self._config.offload_blocks
        copies = [tuple(names[at : at + size]) for at in range(0, len(names) - size + 1, size)]
        self.touch(names)
        self._asked += [copy for copy in copies[before // size :] if copy not in self._asked]

    def touch(self, names: Sequence[BlockName]) -> None:
        """A prompt's copies are in use: its head will go last."""
        for name in reversed(names):
            if name.digest in self._copies:
                self._copies.move_to_end(name.digest)

    def begin(self, now: float) -> None:
        """Start the copies that were asked for, tail first, each in the place of the longest unused."""
        asked = [copy for copy in self._asked if copy[-1].digest not in self._copies]
        self._asked = []
        displaced: list[tuple[BlockName, ...]] = []
        for copy in reversed(asked):
            if len(self._copies) >= self._config.num_copies and not self._displace(displaced):
                self.num_refused += 1
                continue
            num_tokens = self._config.block_size * len(copy)
            self._link_free_at = max(now, self._link_free_at) + self._model.load_back_s(num_tokens)
            made = self._copies[copy[-1].digest] = _Copy(copy, self._link_free_at)
            self._on_way[copy[-1].digest] = made
        if displaced:
            self._events.dropped(displaced)

    def settle(self, now: float) -> None:
        """Announce what is complete."""
        for digest, copy in tuple(self._on_way.items()):
            if copy.ready_at <= now:
                del self._on_way[digest]
                self.num_stored += 1
                self._events.offloaded(copy.names)

    def next_due(self) -> float | None:
        """When the next copy is complete."""
        return min((copy.ready_at for copy in self._on_way.values()), default=None)

    def clear(self) -> None:
        """Forget every copy; the clear that is announced is the device pool's."""
        self._copies.clear()
        self._on_way.clear()
        self._asked = []

    def digests(self) -> Iterator[bytes]:
        """What readable copies are known by."""
        for digest, copy in self._copies.items():
            if digest not in self._on_way:
                yield from self._events.announced(copy.names)

    def check(self) -> None:
        """Verify the bound, and that each copy is found by its last block."""
        assert len(self._copies) <= self._config.num_copies, "more copies than the CPU holds"
        assert self._on_way.keys() <= self._copies.keys(), "on its way to no place"
        for digest, copy in self._copies.items():
            assert copy.names[-1].digest == digest, "a copy is found by another's name"

    def _is_readable(self, digest: bytes) -> bool:
        return digest in self._copies and digest not in self._on_way

    def _displace(self, displaced: list[tuple[BlockName, ...]]) -> bool:
        digest = next((digest for digest in self._copies if self._is_readable(digest)), None)
        if digest is None:
            return False
        displaced.append(self._copies.pop(digest).names)
        self.num_dropped += 1
        return True
