"""Live batches held back while a replay runs: a bounded queue in rising order of their numbers.

Payloads are kept as bytes and read again when they are taken, for a decoded batch is ten times as large.
"""

from collections import OrderedDict
from typing import NamedTuple

from indexer.heard_batch import HeardBatch


class _Held(NamedTuple):
    payload: bytes
    is_readable: bool


class HeldBatches:
    """Queue of held batches; every number once. All operations O(1) but ``clear`` and ``check``."""

    __slots__ = ("_batches", "_max_batches", "_max_bytes", "_size_bytes")

    def __init__(self, max_batches: int, max_bytes: int) -> None:
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._batches: OrderedDict[int, _Held] = OrderedDict()
        self._size_bytes = 0

    def add(self, heard: HeardBatch) -> bool:
        """Hold one more, whose number is above all that are held; False where the bounds forbid it."""
        size_bytes = self._size_bytes + len(heard.payload)
        if len(self._batches) >= self._max_batches or size_bytes > self._max_bytes:
            return False
        self._batches[heard.seq] = _Held(heard.payload, heard.batch is not None)
        self._size_bytes = size_bytes
        return True

    def pop_first(self) -> HeardBatch:
        """Take the lowest number. The queue is not empty."""
        seq, held = self._batches.popitem(last=False)
        self._size_bytes -= len(held.payload)
        return HeardBatch.read(seq, held.payload)

    def discard(self, seq: int) -> None:
        """Let go of ``seq`` if it is held."""
        held = self._batches.pop(seq, None)
        if held is not None:
            self._size_bytes -= len(held.payload)

    def clear(self) -> int:
        """Let go of all; returns how many there were."""
        num_batches = len(self._batches)
        self._batches.clear()
        self._size_bytes = 0
        return num_batches

    def compare(self, heard: HeardBatch) -> bool | None:
        """Is the batch held under this number the same one? None where none is held.

        A held batch that cannot be read counts as the same: its good copy is what a replay is for.
        """
        held = self._batches.get(heard.seq)
        if held is None:
            return None
        return not held.is_readable or held.payload == heard.payload

    def is_readable(self, seq: int) -> bool:
        """Whether ``seq`` is held and can be read."""
        held = self._batches.get(seq)
        return held is not None and held.is_readable

    @property
    def first_seq(self) -> int | None:
        """The lowest number held."""
        return next(iter(self._batches), None)

    @property
    def is_crowded(self) -> bool:
        """Whether half of a bound is used up: what can wait elsewhere should."""
        is_long = 2 * len(self._batches) >= self._max_batches
        return is_long or 2 * self._size_bytes >= self._max_bytes

    @property
    def size_bytes(self) -> int:
        """Payload bytes held."""
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._batches)

    def check(self) -> None:
        """Verify that numbers rise, the byte count is true, and the bounds hold."""
        seqs = list(self._batches)
        size_bytes = sum(len(held.payload) for held in self._batches.values())
        assert seqs == sorted(seqs), f"held numbers do not rise: {seqs}"
        assert size_bytes == self._size_bytes, f"{size_bytes} bytes, {self._size_bytes} counted"
        assert len(seqs) <= self._max_batches, f"{len(seqs)} batches held"
        assert size_bytes <= self._max_bytes, f"{size_bytes} bytes held"
