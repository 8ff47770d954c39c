"""A publisher that is always right: it holds blocks, announces what it does, and can be restarted."""

from collections import deque
from random import Random

from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    KvEvent,
    encode_batch,
)

NUM_BLOCKS = 24


class SimPublisher:
    """One rank of an engine: blocks held, batches numbered from 0 a process, a buffer for replays.

    Attributes:
        held: the blocks it holds, in truth.
        buffer: (number, payload) of the last batches.
        epoch: how often it was restarted.
    """

    def __init__(
        self, rng: Random, dp_rank: int, *, buffer_steps: int, has_first_clear: bool
    ) -> None:
        self._rng = rng
        self._dp_rank = dp_rank
        self._has_first_clear = has_first_clear
        self._num_published = 0
        self.held: set[EngineHash] = set()
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self.next_seq = 0
        self.epoch = 0

    def restart(self) -> None:
        """A new process: nothing held, nothing buffered, numbers from 0."""
        self.held.clear()
        self.buffer.clear()
        self.next_seq = 0
        self.epoch += 1

    def publish(self, now: float, *, is_garbled: bool = False) -> tuple[int, bytes]:
        """Do something, announce it; returns number and payload (unreadable where garbled)."""
        events = self._events()
        for event in events:
            self._do(event)
        self._num_published += 1
        ts = 1e9 + now + self._num_published * 1e-3  # no two batches ever have the same bytes
        payload = encode_batch(EventBatch(ts, events, self._dp_rank))
        if is_garbled:
            payload = b"\xc1" + payload
        seq = self.next_seq
        self.next_seq += 1
        self.buffer.append((seq, payload))
        return seq, payload

    def _events(self) -> list[KvEvent]:
        if self.next_seq == 0 and self._has_first_clear:
            return [AllBlocksCleared()]
        if self._rng.random() < 0.01:
            return [AllBlocksCleared()]
        return [self._event() for _ in range(self._rng.randint(1, 3))]

    def _event(self) -> KvEvent:
        block = self._rng.randrange(1, NUM_BLOCKS)
        if self._rng.random() < 0.45:
            return BlockRemoved([block], "GPU")
        return BlockStored([block], None, [block], 1, "GPU")

    def _do(self, event: KvEvent) -> None:
        match event:
            case BlockStored(block_hashes=hashes):
                self.held.update(hashes)
            case BlockRemoved(block_hashes=hashes):
                self.held.difference_update(hashes)
            case AllBlocksCleared():
                self.held.clear()
