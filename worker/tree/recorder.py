"""The event queue: pages join the event at its tail where the engine's rules allow, and nowhere else.

Stores join when everything they carry is equal and the first page's parent is the tail's last page;
removals join a removal of the same medium, whatever their parents. So runs cross nodes, and requests of
one flush, but never an event of the other kind.

Source: SGLang 0.5.23 event recorder, as recorded (``recorder_merge``).
"""

from dataclasses import dataclass

from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash, KvEvent


@dataclass(frozen=True, slots=True)
class StoreLabels:
    """What stores must have in common to join."""

    medium: str
    block_size: int
    cache_salt: str | None = None
    session_id: str | None = None
    lora_name: str | None = None
    is_eagle: bool = False


@dataclass(slots=True)
class _Stored:
    labels: StoreLabels
    parent: EngineHash | None
    hashes: list[EngineHash]
    run: list[int]


@dataclass(slots=True)
class _Removed:
    medium: str
    hashes: list[EngineHash]


class EventRecorder:
    """Disabled, it records nothing and every call returns at once.

    The queue is bounded by what happens between two ``take`` calls; the owner takes after every step.
    """

    def __init__(self, *, is_enabled: bool = True) -> None:
        self._is_enabled = is_enabled
        self._queue: list[_Stored | _Removed | AllBlocksCleared] = []

    def __len__(self) -> int:
        """Events in the queue."""
        return len(self._queue)

    @property
    def is_enabled(self) -> bool:
        """Whether anything is recorded."""
        return self._is_enabled

    def store(
        self,
        labels: StoreLabels,
        parent: EngineHash | None,
        hashes: list[EngineHash],
        run: list[int],
    ) -> None:
        """Record consecutive pages.

        Args:
            parent: hash of the page before the first; None at the start of a prompt.
            hashes: one a page, at least one.
            run: their token ids; one id more than the pages hold where they are pairs.
        """
        if not self._is_enabled:
            return
        tail = self._queue[-1] if self._queue else None
        if isinstance(tail, _Stored) and parent == tail.hashes[-1] and tail.labels == labels:
            tail.hashes += hashes
            tail.run += run[1:] if labels.is_eagle else run
        else:
            self._queue.append(_Stored(labels, parent, hashes, run))

    def remove(self, medium: str, hashes: list[EngineHash]) -> None:
        """Record that pages left a medium, in this order."""
        if not self._is_enabled:
            return
        tail = self._queue[-1] if self._queue else None
        if isinstance(tail, _Removed) and tail.medium == medium:
            tail.hashes += hashes
        else:
            self._queue.append(_Removed(medium, hashes))

    def clear(self) -> None:
        """Record that everything is gone; what was queued before stays queued."""
        if self._is_enabled:
            self._queue.append(AllBlocksCleared())

    def take(self) -> list[KvEvent]:
        """Hand over the queue."""
        queue, self._queue = self._queue, []
        return [_event(entry) for entry in queue]


def _event(entry: _Stored | _Removed | AllBlocksCleared) -> KvEvent:
    match entry:
        case _Stored(labels, parent, hashes, run):
            return BlockStored(
                block_hashes=hashes,
                parent_hash=parent,
                token_ids=run,
                block_size=labels.block_size,
                medium=labels.medium,
                lora_name=labels.lora_name,
                cache_salt=labels.cache_salt,
                session_id=labels.session_id,
                is_eagle=labels.is_eagle,
            )
        case _Removed(medium, hashes):
            return BlockRemoved(block_hashes=hashes, medium=medium)
        case AllBlocksCleared():
            return entry
