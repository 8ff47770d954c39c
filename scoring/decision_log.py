"""The decision log: the last decisions, by request id and by age."""

from collections import deque
from itertools import islice

from scoring.decision import Decision


class DecisionLog:
    """A bounded log; the oldest decision leaves when it is full.

    A request that was planned more than once (a retry) has as many entries; its id finds the newest.

    Args:
        max_decisions: entries kept, at least 1. One weighs 5 KiB with 8 ranks and 10 KiB with 16 or
            more.
    """

    def __init__(self, max_decisions: int) -> None:
        self._max_decisions = max_decisions
        self._entries: deque[Decision] = deque()
        self._by_id: dict[str, Decision] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, decision: Decision) -> None:
        """Log a decision. O(1)."""
        if len(self._entries) >= self._max_decisions:
            oldest = self._entries.popleft()
            if self._by_id.get(oldest.request_id) is oldest:
                del self._by_id[oldest.request_id]
        self._entries.append(decision)
        self._by_id[decision.request_id] = decision

    def find(self, request_id: str) -> Decision | None:
        """The newest decision about a request; None if it is unknown or has left. O(1)."""
        return self._by_id.get(request_id)

    def newest(self, limit: int) -> list[Decision]:
        """Up to ``limit`` decisions, newest first."""
        return list(islice(reversed(self._entries), max(limit, 0)))

    def check(self) -> None:
        """Verify the bound, and that every id finds the newest entry under it."""
        assert len(self._entries) <= self._max_decisions, len(self._entries)
        newest = {decision.request_id: decision for decision in self._entries}
        assert newest.keys() == self._by_id.keys(), "ids"
        assert all(self._by_id[name] is decision for name, decision in newest.items()), "entries"
