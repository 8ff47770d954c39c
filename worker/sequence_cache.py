"""One request's life against the tree: what it locks, owns, inserts and gives back.

A sequence in the engine holds a locked prefix of the tree and device slots of its own behind it:

    0 ───── locked_tokens ────── computed ───── locked + owned
    │ in the tree, shared │ own slots, filled │ own slots, empty │

All slots that the whole answer will need are reserved at admission, so a running request never waits
and is never preempted.
"""

from worker.request import Sequence, Usage
from worker.tree import CacheKey, Match, Node, TreeCore


class SequenceCache:
    """Admits, extends and ends sequences; O(tokens) each."""

    def __init__(self, tree: TreeCore) -> None:
        self._tree = tree

    @property
    def capacity(self) -> int:
        """Device slots that one request can have at most."""
        return self._whole_pages(self._tree.device.capacity)

    def slots_needed(self, num_prompt: int, max_new_tokens: int) -> int:
        """Device slots of a whole request; the last token of an answer is never computed."""
        page_size = self._tree.config.page_size
        return self._whole_pages(num_prompt + max_new_tokens - 1 + page_size - 1)

    def admit(self, sequence: Sequence) -> bool:
        """Lock the cached prefix, load back its host part, reserve the rest.

        At least one prompt token stays to be computed. Sets ``load_back`` where a copy is to be waited
        for, and ``usage``.

        Returns:
            False, with nothing held, if the device pool has no room now.
        """
        key = sequence.key(sequence.num_prompt - 1)
        total = self.slots_needed(sequence.num_prompt, sequence.request.max_new_tokens)
        match = self._tree.match(key)
        self._tree.lock(match.device_node)
        self._tree.lock_host(match.node)
        load_back = None
        owned = self._reserve(total - match.tokens)
        if owned is not None and match.host_tokens:
            load_back = self._tree.load_back(match)
            if load_back is None:
                owned = self._reserve(match.host_tokens, besides=owned)
        self._tree.unlock_host(match.node)
        if owned is None:
            self._tree.unlock(match.device_node)
            return False
        sequence.node, sequence.locked_tokens = match.device_node, match.device_tokens
        if load_back is not None:
            self._relock(sequence, key)
        sequence.load_back = load_back
        sequence.owned_tokens = owned
        sequence.computed = sequence.locked_tokens
        sequence.usage = _usage(sequence, match)
        assert sequence.locked_tokens + owned == total, "a load back brought another length"
        return True

    def finish_load_back(self, sequence: Sequence) -> None:
        """The copy that the prefill waited for is complete."""
        if sequence.load_back is not None:
            self._tree.finish_load_back(sequence.load_back)
            sequence.load_back = None

    def extend(self, sequence: Sequence) -> None:
        """Cache the whole pages computed so far; the request goes on."""
        before = sequence.node
        length = self._whole_pages(sequence.computed)
        if before is None or length <= sequence.locked_tokens:
            return
        sequence.node = self._insert(sequence, length)
        self._tree.lock(sequence.node)
        self._tree.unlock(before)
        sequence.locked_tokens = length

    def end(self, sequence: Sequence) -> None:
        """Cache the whole pages computed, and give back everything that the sequence holds."""
        if sequence.node is None:
            return
        self.finish_load_back(sequence)
        length = self._whole_pages(sequence.computed)
        if length > sequence.locked_tokens:
            self._insert(sequence, length)
        self._tree.release(sequence.owned_tokens)
        self._tree.unlock(sequence.node)
        sequence.node, sequence.locked_tokens, sequence.owned_tokens = None, 0, 0

    def _reserve(self, num_tokens: int, besides: int = 0) -> int | None:
        """Slots held with ``num_tokens`` more; None, with none held, where there is no room."""
        if self._tree.reserve(num_tokens):
            return besides + num_tokens
        self._tree.release(besides)
        return None

    def _relock(self, sequence: Sequence, key: CacheKey) -> None:
        """Move the lock to the deeper prefix that a load back has brought to the device."""
        before = sequence.node
        match = self._tree.match(key)
        self._tree.lock(match.device_node)
        if before is not None:
            self._tree.unlock(before)
        sequence.node, sequence.locked_tokens = match.device_node, match.device_tokens

    def _insert(self, sequence: Sequence, length: int) -> Node:
        owned = length - sequence.locked_tokens
        sequence.owned_tokens -= owned
        result = self._tree.insert(
            sequence.key(length),
            owned_tokens=owned,
            session_id=sequence.request.session_id,
            counted_tokens=sequence.counted_tokens,
        )
        sequence.counted_tokens = length
        return result.node

    def _whole_pages(self, num_tokens: int) -> int:
        page_size = self._tree.config.page_size
        return num_tokens // page_size * page_size


def _usage(sequence: Sequence, match: Match) -> Usage:
    loaded = sequence.locked_tokens - match.device_tokens
    refilled = min(loaded, sequence.refilled_tokens)
    return Usage(sequence.num_prompt, match.device_tokens, loaded - refilled, refilled)
