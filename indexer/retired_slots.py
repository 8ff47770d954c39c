"""Slots that were given up with all their bits: swept a few blocks at a time, while nobody looks at them.

A rank that loses every claim at once takes a new slot, which costs the same however many claims it had. Its
old bits are in nobody's lookup from then on; they and the tables that list them wait here.

    clear ──▶ rank: slot 3 ──▶ slot 9       here: slot 3 with its tables ──sweep, sweep, …──▶ slot 3 is free
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from protocol import EngineHash

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
Table: TypeAlias = dict[EngineHash, R | None] | list[R]
"""Blocks that may have a bit of a slot, as refs: the values of a dictionary, or a list."""


class _Bits(Protocol[R_contra]):
    """What the slots are of."""

    def strip(self, refs: Iterable[R_contra], slot: int) -> None:
        """Clear every bit of the slot on those of the blocks that have one."""

    def free_slot(self, slot: int) -> None:
        """The slot has no bit any more."""


@dataclass(slots=True, eq=False)
class _Slot(Generic[R]):
    number: int
    tables: list[Table[R]]


class RetiredSlots(Generic[R]):
    """Retired slots, the first to be swept first. Whoever retires one asks ``num_blocks`` before.

    Attributes:
        num_blocks: entries of all tables.
    """

    def __init__(self) -> None:
        self._slots: deque[_Slot[R]] = deque()
        self.num_blocks = 0

    def add(self, slot: int, tables: Iterable[Table[R]]) -> None:
        """Nobody looks at the slot any more; ``tables`` list every block with a bit of it. O(tables)."""
        kept = [table for table in tables if table]
        self._slots.append(_Slot(slot, kept))
        self.num_blocks += sum(map(len, kept))

    def sweep(self, bits: _Bits[R], max_blocks: int) -> bool:
        """Take the bits off so many blocks; O(``max_blocks``). True when nothing is left."""
        while self._slots:
            oldest = self._slots[0]
            while oldest.tables and max_blocks > 0:
                table = oldest.tables[-1]
                before = len(table)
                bits.strip(_take(table, max_blocks), oldest.number)
                max_blocks -= before - len(table)
                self.num_blocks -= before - len(table)
                if not table:
                    oldest.tables.pop()
            if oldest.tables:
                return False
            bits.free_slot(oldest.number)
            self._slots.popleft()
        return True

    def listed(self) -> dict[int, set[R]]:
        """Slot → blocks in its tables. For checks."""
        return {
            slot.number: {ref for table in slot.tables for ref in _refs(table)}
            for slot in self._slots
        }

    def check(self) -> None:
        """Verify the count."""
        assert self.num_blocks == sum(len(table) for slot in self._slots for table in slot.tables)
        assert all(table for slot in self._slots for table in slot.tables)


def _take(table: Table[R], count: int) -> list[R]:
    """Take up to so many entries out, from the end; O(``count``)."""
    if isinstance(table, dict):
        taken = [table.popitem()[1] for _ in range(min(count, len(table)))]
        return [ref for ref in taken if ref is not None]
    last = table[-count:]
    del table[-count:]
    return last


def _refs(table: Table[R]) -> set[R]:
    values = table.values() if isinstance(table, dict) else table
    return {ref for ref in values if ref is not None}
