"""What a block pool announces, in the order of what happens; handed over after each step.

Blocks of one request that fill together are one event. Each copy of a block that goes is an event of its
own; copies on CPU go in one.
"""

from collections.abc import Sequence
from enum import StrEnum

from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash, KvEvent
from worker.blocks.block_name import BlockName, engine_hash
from worker.blocks.config import BlockConfig

_GROUP = 0
_KIND = "full_attention"


class Medium(StrEnum):
    """Where blocks lie, as published."""

    GPU = "GPU"
    CPU = "CPU"


class BlockEvents:
    """The queue of one pool. Disabled, it records nothing.

    It grows by what happens between two ``take`` calls: by a step, and by as many clears as are asked for
    while nothing runs, of which the latest 1,024 are kept.
    """

    _MAX_CLEARS = 1_024

    def __init__(self, config: BlockConfig) -> None:
        self._config = config
        self._lora_ids = {name: number for number, name in enumerate(config.adapters, 1)}
        self._queue: list[KvEvent] = []

    def __len__(self) -> int:
        return len(self._queue)

    def stored(self, names: Sequence[BlockName]) -> None:
        """Consecutive blocks of one request became readable on the device."""
        keys = [None if name.extra is None else list(name.extra) for name in names]
        self._record(self._described(Medium.GPU, names, keys))

    def removed(self, digest: bytes) -> None:
        """One copy left the device."""
        self._record(BlockRemoved([self._hash(digest)], Medium.GPU, _GROUP))

    def offloaded(self, copy: Sequence[BlockName]) -> None:
        """A copy on CPU, of one block or several, is complete."""
        if self._config.is_self_describing:
            for name in copy:
                self._record(self._described(Medium.CPU, [name], None))
        else:
            hashes = [self._hash(copy[-1].digest)]
            self._record(BlockStored(hashes, None, [], 0, Medium.CPU))

    def dropped(self, copies: Sequence[Sequence[BlockName]]) -> None:
        """Copies left the CPU, in this order."""
        hashes = [self._hash(digest) for copy in copies for digest in self.announced(copy)]
        group = _GROUP if self._config.is_self_describing else None
        self._record(BlockRemoved(hashes, Medium.CPU, group))

    def announced(self, copy: Sequence[BlockName]) -> list[bytes]:
        """Digests that a copy on CPU is known by."""
        names = copy if self._config.is_self_describing else copy[-1:]
        return [name.digest for name in names]

    def cleared(self) -> None:
        """Everything is gone, whatever the CPU still holds."""
        clears = sum(isinstance(event, AllBlocksCleared) for event in self._queue)
        if clears < self._MAX_CLEARS:
            self._record(AllBlocksCleared())

    def take(self) -> list[KvEvent]:
        """Hand over the queue."""
        queue, self._queue = self._queue, []
        return queue

    def _record(self, event: KvEvent) -> None:
        if self._config.events_enabled:
            self._queue.append(event)

    def _described(
        self, medium: Medium, names: Sequence[BlockName], keys: list[list[str] | None] | None
    ) -> BlockStored:
        first = names[0]
        return BlockStored(
            block_hashes=[self._hash(name.digest) for name in names],
            parent_hash=None if first.parent is None else self._hash(first.parent),
            token_ids=[token for name in names for token in name.tokens],
            block_size=self._config.block_size,
            medium=medium,
            lora_id=None if first.adapter is None else self._lora_ids.get(first.adapter),
            lora_name=first.adapter,
            session_id=first.session_id,
            extra_keys=keys,
            group_idx=_GROUP,
            spec_kind=_KIND,
        )

    def _hash(self, digest: bytes) -> EngineHash:
        return engine_hash(digest, is_whole=self._config.has_byte_hashes)
