"""One request's life against the tree: what it locks, owns, inserts and gives back.

A sequence in the engine holds a locked prefix of the tree and device slots of its own behind it:

    0 ───── locked_tokens ────── computed ───── locked + owned
    │ in the tree, shared │ own slots, filled │ own slots, empty │

Slots for the tokens there are, the prompt's, are reserved at admission; those of the answer come page by page
as it grows. A request that is retracted gives its own slots back: what they held is lost, what lies
in the tree stays there and is hit when it is admitted anew.
"""

from dataclasses import dataclass

from worker.host_buffer import HostBuffer
from worker.prefetch import Prefetch
from worker.request import Sequence, Usage
from worker.staged_reads import StagedRead
from worker.tree import CacheKey, LoadBack, Match, Node, TreeCore

CLIPPED_ANSWER = 4_096
"""More tokens than this of an answer to come are not waited for at admission."""


@dataclass(slots=True)
class Hold:
    """What one request holds.

    Attributes:
        node, locked_tokens: the locked part of the tree and its length; None = nothing is locked.
        owned_tokens: reserved device slots beyond it.
        counted_tokens: length of the latest insert; a request hits each page once.
        refilled_tokens: brought from storage for this request.
        prefetch: fetch that the request waits for.
        load_back: copy that its prefill waits for.
        read: where host only stages: fetch that the request waits for, then what it put on host, up to its end on
            the device.
    """

    node: Node | None = None
    locked_tokens: int = 0
    owned_tokens: int = 0
    counted_tokens: int = 0
    refilled_tokens: int = 0
    prefetch: Prefetch | None = None
    load_back: LoadBack | None = None
    read: StagedRead | None = None

    @property
    def num_tokens(self) -> int:
        """Device slots that it locks or owns."""
        return self.locked_tokens + self.owned_tokens


class SequenceCache:
    """Admits, extends, retracts and ends sequences; O(tokens) each.

    Args:
        buffer: None where host memory is a cache, or there is no storage.
    """

    def __init__(self, tree: TreeCore, buffer: HostBuffer | None = None) -> None:
        self._tree = tree
        self._buffer = buffer

    @property
    def capacity(self) -> int:
        """Device slots that one request can have at most."""
        size = self._tree.config.page_size
        return self._tree.device.capacity // size * size

    def slots_needed(self, num_tokens: int) -> int:
        """Device slots of so many tokens, in whole pages."""
        size = self._tree.config.page_size
        return -(-num_tokens // size) * size

    def admit(self, sequence: Sequence, hold: Hold, headroom: int) -> bool:
        """Lock the cached prefix, load back its host part, reserve slots for the other tokens there are.

        There must be room for the answer as well, and for ``headroom`` tokens, though neither is reserved.

        Returns:
            False, with nothing held, if the device pool has no room now.
        """
        key = sequence.key(len(sequence.tokens) - 1)
        match = self._tree.match(key)
        self._tree.lock(match.device_node)
        self._tree.lock_host(match.node)
        is_held = self._has_room(sequence, match, headroom) and self._hold(sequence, hold, match)
        self._tree.unlock_host(match.node)
        if not is_held:
            self._tree.unlock(match.device_node)
            return False
        hold.node, hold.locked_tokens = match.device_node, match.device_tokens
        if hold.load_back is not None:
            self._relock(hold, key)
            sequence.copied_tokens = hold.load_back.num_tokens
        self._splice(sequence, hold, self._whole_pages(len(key.tokens)))
        sequence.computed = hold.locked_tokens
        if not sequence.num_preempted:
            sequence.usage = _usage(sequence, hold, match)
        return True

    def grow(self, hold: Hold) -> bool:
        """Own one more page; False where the device pool has none."""
        size = self._tree.config.page_size
        if not self._tree.reserve(size):
            return False
        hold.owned_tokens += size
        return True

    def extend(self, sequence: Sequence, hold: Hold) -> None:
        """Cache the whole pages computed so far; the request goes on."""
        self._finish_load_back(sequence, hold)
        length = self._whole_pages(sequence.computed)
        if hold.node is not None and self._is_news(hold, length):
            self._grow_prefix(sequence, hold, length)

    def retract(self, sequence: Sequence, hold: Hold) -> None:
        """Give back everything that the sequence holds; what is not in the tree is lost."""
        if hold.node is None:
            return
        self._finish_load_back(sequence, hold)
        self._tree.release(hold.owned_tokens)
        self._tree.unlock(hold.node)
        hold.node, hold.locked_tokens, hold.owned_tokens = None, 0, 0
        sequence.computed = 0

    def end(self, sequence: Sequence, hold: Hold) -> None:
        """Cache the whole pages computed, and give back everything that the sequence holds."""
        if hold.node is None:
            return
        self._finish_load_back(sequence, hold)
        length = self._whole_pages(sequence.computed)
        if self._is_news(hold, length):
            self._insert(sequence, hold, length)
        self.retract(sequence, hold)

    def _has_room(self, sequence: Sequence, match: Match, headroom: int) -> bool:
        """Whether all of the answer would fit beside what others are expected to take."""
        to_come = min(sequence.num_to_come, CLIPPED_ANSWER)
        total = self.slots_needed(len(sequence.tokens) + to_come - 1)
        return total - match.device_tokens + headroom <= self._tree.room

    def _hold(self, sequence: Sequence, hold: Hold, match: Match) -> bool:
        """Take slots for what the match leaves to be computed, and load back its host part."""
        owned = self.slots_needed(len(sequence.tokens)) - match.tokens
        if not self._tree.reserve(owned):
            return False
        if match.host_tokens:
            hold.load_back = self._tree.load_back(match)
            if hold.load_back is None:
                if not self._tree.reserve(match.host_tokens):
                    self._tree.release(owned)
                    return False
                owned += match.host_tokens
        hold.owned_tokens = owned
        return True

    def _finish_load_back(self, sequence: Sequence, hold: Hold) -> None:
        """The copy that the prefill waited for is complete."""
        if hold.load_back is not None:
            self._tree.finish_load_back(hold.load_back)
            hold.load_back, sequence.copied_tokens = None, 0
        if hold.read is not None and self._buffer is not None:
            self._buffer.reads.finish(hold.read)
            hold.read, sequence.copied_tokens = None, 0

    def _splice(self, sequence: Sequence, hold: Hold, max_tokens: int) -> None:
        """Put what was read for the request on the device, behind its match, in slots of its own; where it does
        not follow the match, it is dropped."""
        if hold.read is None or self._buffer is None:
            return
        reads = self._buffer.reads
        num_tokens = reads.spliceable(hold.read, hold.locked_tokens, max_tokens)
        if not num_tokens:
            reads.drop(hold.read)
            hold.read = None
            return
        self._grow_prefix(sequence, hold, hold.locked_tokens + num_tokens)
        hold.refilled_tokens = sequence.copied_tokens = num_tokens
        reads.counters.refilled_tokens += num_tokens

    def _is_news(self, hold: Hold, length: int) -> bool:
        """Whether an insert up to ``length`` caches something, or counts the hit of what was cached."""
        return length > min(hold.locked_tokens, hold.counted_tokens)

    def _grow_prefix(self, sequence: Sequence, hold: Hold, length: int) -> None:
        """Own slots up to ``length`` become part of the tree, and locked."""
        before = hold.node
        assert before is not None, "an admitted sequence has its place"
        hold.node = self._insert(sequence, hold, length)
        self._tree.lock(hold.node)
        self._tree.unlock(before)
        hold.locked_tokens = length

    def _relock(self, hold: Hold, key: CacheKey) -> None:
        """Move the lock to the deeper prefix that a load back has brought to the device."""
        before = hold.node
        match = self._tree.match(key)
        self._tree.lock(match.device_node)
        if before is not None:
            self._tree.unlock(before)
        hold.node, hold.locked_tokens = match.device_node, match.device_tokens

    def _insert(self, sequence: Sequence, hold: Hold, length: int) -> Node:
        owned = length - hold.locked_tokens
        hold.owned_tokens -= owned
        result = self._tree.insert(
            sequence.key(length + self._tree.config.is_eagle),
            owned_tokens=owned,
            priority=sequence.request.priority,
            session_id=sequence.request.session_id,
            counted_tokens=hold.counted_tokens,
        )
        hold.counted_tokens = length
        if self._buffer is not None:
            self._buffer.writes.want(result.to_write)
        return result.node

    def _whole_pages(self, num_tokens: int) -> int:
        """Tokens of the pages that so many tokens fill; of pairs there is one fewer."""
        page_size, is_eagle = self._tree.config.page_size, self._tree.config.is_eagle
        return max(0, num_tokens - is_eagle) // page_size * page_size


def _usage(sequence: Sequence, hold: Hold, match: Match) -> Usage:
    loaded = hold.locked_tokens - match.device_tokens
    refilled = min(loaded, hold.refilled_tokens)
    return Usage(sequence.num_prompt, match.device_tokens, loaded - refilled, refilled)
