"""What was worked out for a text, or for bytes, kept for those that begin alike.

    data    |- chunk -|- chunk -|- chunk -|- rest -|
    names        a         ab        abc              the name of a chunk covers all before it

What is put is entered under the names of all whole chunks of its data, and takes these names over from what
had them before. A lookup tries the names of the asked data from the longest on. Names are hashes and may
collide, so what is found is compared, and what it shares with the asked data is told: a collision costs time
and never an answer. What loses its last name to others can never be found again and goes at once, so that
data which grows step by step takes the room of its newest step alone.

Bounded in bytes and in entries: at either bound what was not asked for the longest goes, and what is larger than
all the room is not kept. All of this changes what a lookup costs, never what comes of it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import AnyStr, Generic, NamedTuple, TypeVar

from xxhash import xxh3_64_intdigest

CHUNK = 4096
"""Characters, or bytes, of one chunk. Data shorter than this is not kept and finds nothing."""

_NAME_BYTES = 160  # a name in the table and in its entry
_ENTRY_BYTES = 512  # beside data, value and names

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Bounds of one table. ``max_bytes`` counts data, values and names."""

    max_bytes: int = 64 << 20
    max_entries: int = 4096


class Found(NamedTuple, Generic[Value]):
    """What was put for data that begins with the same ``num_common`` characters, or bytes, as the asked data."""

    value: Value
    num_common: int


@dataclass(eq=False, slots=True)
class _Entry(Generic[AnyStr, Value]):
    """``num_names`` of its names still lead here."""

    space: int
    data: AnyStr
    names: Sequence[int]
    value: Value
    size_bytes: int
    num_names: int = 0


class PrefixTable(Generic[AnyStr, Value]):
    """Values by the beginnings of their data, all texts or all bytes. Not thread-safe.

    Attributes:
        size_bytes: of all that is kept.
        num_hits: lookups that found something.
        num_misses: lookups that found nothing.
        num_evicted: entries that went at a bound.
        num_oversized: entries that were larger than all the room.
    """

    def __init__(self, limits: TableLimits) -> None:
        self._limits = limits
        self._by_name: dict[int, _Entry[AnyStr, Value]] = {}
        self._entries: dict[_Entry[AnyStr, Value], None] = {}  # what was asked for last comes last
        self.size_bytes = 0
        self.num_hits = self.num_misses = self.num_evicted = self.num_oversized = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, space: int, data: AnyStr, names: Sequence[int]) -> Found[Value] | None:
        """The value whose data shares the longest beginning with ``data``, as far as names tell. O(data).

        Args:
            space: data of different spaces have nothing to do with each other.
            names: those of ``data`` in this space (`chunk_names`).
        """
        for name in reversed(names):
            entry = self._by_name.get(name)
            if entry is None or entry.space != space:
                continue
            num_common = _num_common(data, entry.data)
            if num_common:
                del self._entries[entry]
                self._entries[entry] = None
                self.num_hits += 1
                return Found(entry.value, num_common)
        self.num_misses += 1
        return None

    def put(
        self, space: int, data: AnyStr, names: Sequence[int], value: Value, value_bytes: int
    ) -> None:
        """Keep a value. O(chunks of ``data``), and what goes for it.

        Args:
            names: those of ``data``; with none of them it is not kept.
            value_bytes: the size of ``value``.
        """
        if not names:
            return
        size_bytes = sys.getsizeof(data) + value_bytes + len(names) * _NAME_BYTES + _ENTRY_BYTES
        if size_bytes > self._limits.max_bytes:
            self.num_oversized += 1
            return
        entry = _Entry(space, data, names, value, size_bytes)
        self._entries[entry] = None
        self.size_bytes += size_bytes
        for name in names:
            self._take_over(name, entry)
        while self.size_bytes > self._limits.max_bytes or len(self) > self._limits.max_entries:
            self.num_evicted += 1
            self._evict(next(iter(self._entries)))

    def check(self) -> None:
        """Verify the invariants: sizes, bounds, and that names and entries lead to each other."""
        limits = self._limits
        assert self.size_bytes == sum(entry.size_bytes for entry in self._entries)
        assert self.size_bytes <= limits.max_bytes, self.size_bytes
        assert len(self) <= limits.max_entries, len(self)
        for name, entry in self._by_name.items():
            assert entry in self._entries, name
            assert name in entry.names, name
        for entry in self._entries:
            held = [name for name in set(entry.names) if self._by_name.get(name) is entry]
            assert entry.num_names == len(held) > 0, (entry.num_names, held)

    def _take_over(self, name: int, entry: _Entry[AnyStr, Value]) -> None:
        before = self._by_name.get(name)
        if before is entry:
            return
        self._by_name[name] = entry
        entry.num_names += 1
        if before is not None:
            before.num_names -= 1
            if not before.num_names:
                self._drop(before)

    def _evict(self, entry: _Entry[AnyStr, Value]) -> None:
        for name in entry.names:
            if self._by_name.get(name) is entry:
                del self._by_name[name]
        self._drop(entry)

    def _drop(self, entry: _Entry[AnyStr, Value]) -> None:
        del self._entries[entry]
        self.size_bytes -= entry.size_bytes


def chunk_names(space: int, data: str | bytes) -> list[int]:
    """One name for each whole chunk of ``data``, and for what comes before it. O(data)."""
    names: list[int] = []
    name, digest = space, xxh3_64_intdigest
    for end in range(CHUNK, len(data) + 1, CHUNK):
        chunk = data[end - CHUNK : end]
        name = digest(chunk if isinstance(chunk, bytes) else _bytes_of(chunk), name)
        names.append(name)
    return names


def _bytes_of(chunk: str) -> bytes:
    """Some bytes that tell it from others, in the form that is the quickest to make."""
    return chunk.encode() if chunk.isascii() else chunk.encode("utf-16-le", "surrogatepass")


def _num_common(one: AnyStr, other: AnyStr) -> int:
    """How much two share from the beginning on."""
    return len(other) if one.startswith(other) else common_length(one, other)


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """How much two texts, or lists, share from the beginning on. O(length × log length), in slices."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
