"""The state after a recorded stream, folded as plain sets: what a consumer of it should believe.

Pure, and on purpose nothing of the index is in it: a recording with this beside it tests the index.
"""

from collections import Counter
from dataclasses import dataclass, field

from kvroute.tap.heard import Batch
from kvroute.tap.line import full_hash
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash

MAX_GAPS = 10_000
"""Gaps that are listed; further ones are left out."""

_Place = tuple[str | None, int | None]


@dataclass(slots=True)
class Fold:
    """One rank's stream, batch by batch.

    A number that is not above the last one is a restart: everything held is forgotten.
    """

    first_seq: int | None = None
    last_seq: int | None = None
    num_restarts: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _held: dict[_Place, set[EngineHash]] = field(default_factory=dict)
    _kinds: dict[_Place, str | None] = field(default_factory=dict)

    def apply(self, heard: Batch) -> None:
        """The next batch. O(blocks in it)."""
        self._count(heard.message.seq)
        for event in heard.batch.events:
            match event:
                case BlockStored():
                    self._store(event)
                case BlockRemoved():
                    self._remove(event)
                case AllBlocksCleared():
                    self.counts["cleared"] += 1
                    self._clear(event.medium)

    def expected(self, recording: str) -> dict[str, object]:
        """As it stands beside a recording of this name."""
        names = ("stored", "removed", "cleared", "duplicate_stores", "unknown_removals", "batches")
        blocks = [
            {
                "medium": medium,
                "group_idx": group,
                "kv_cache_spec_kind": self._kinds.get((medium, group)),
                "hashes": sorted(map(_written, hashes), key=str),
            }
            for (medium, group), hashes in self._held.items()
            if hashes
        ]
        return {
            "recording": recording,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "restarts": self.num_restarts,
            "gaps": self.gaps,
            "counts": {name: self.counts[name] for name in names},
            "blocks": blocks,
        }

    def _count(self, seq: int) -> None:
        self.counts["batches"] += 1
        if self.first_seq is None or self.last_seq is None:
            self.first_seq = self.last_seq = seq
            return
        if seq <= self.last_seq:
            self.num_restarts += 1
            self._clear(None)
            self.last_seq = -1
        if seq > self.last_seq + 1 and len(self.gaps) < MAX_GAPS:
            self.gaps.append((self.last_seq + 1, seq - 1))
        self.last_seq = seq

    def _store(self, event: BlockStored) -> None:
        place = (event.medium, event.group_idx)
        held, hashes = self._held.setdefault(place, set()), event.block_hashes
        self._kinds[place] = event.spec_kind
        self.counts["stored"] += len(hashes)
        self.counts["duplicate_stores"] += sum(one in held for one in hashes)
        held.update(hashes)

    def _remove(self, event: BlockRemoved) -> None:
        held = self._held.get((event.medium, event.group_idx), set())
        self.counts["removed"] += len(event.block_hashes)
        self.counts["unknown_removals"] += sum(one not in held for one in event.block_hashes)
        held.difference_update(event.block_hashes)

    def _clear(self, medium: str | None) -> None:
        for (of_medium, _), held in self._held.items():
            if medium is None or medium == of_medium:
                held.clear()


def _written(block_hash: EngineHash) -> int | str:
    return full_hash(block_hash) if isinstance(block_hash, bytes) else block_hash
