"""Do our keys agree with the engine's? Every block an event stores answers for a block we dispatched.

A request whose prompt the rank did not hold makes the engine store new blocks; at least one of them must
be one that was predicted. Where stores keep coming and none of them ever is, the two sides do not see the
same tokens: another template or tokenizer, another model, another namespace.
"""

from collections import deque

_SETTLE_S = 10.0
_REQUESTS = 3


class Parity:
    """Requests of one rank that should have been confirmed by an event and were not."""

    def __init__(self) -> None:
        self._unconfirmed: deque[float] = deque(maxlen=_REQUESTS)
        self._stored_before = 0

    @property
    def num_unconfirmed(self) -> int:
        """Such requests since the last confirmation, at most three."""
        return len(self._unconfirmed)

    def served(self, num_stored: int, now: float) -> None:
        """A request ended, no block was confirmed since its dispatch, and one should have been.

        Args:
            num_stored: blocks that events have stored on GPU so far.
        """
        if not self._unconfirmed:
            self._stored_before = num_stored
        if len(self._unconfirmed) < _REQUESTS:
            self._unconfirmed.append(now)

    def confirm(self) -> None:
        """An event stored a block under the key that it was predicted by."""
        self._unconfirmed.clear()

    def is_broken(self, num_stored: int, now: float) -> bool:
        """Three requests, events for all of them overdue, and stores of nothing but other blocks."""
        return (
            len(self._unconfirmed) == _REQUESTS
            and now - self._unconfirmed[-1] >= _SETTLE_S
            and num_stored - self._stored_before >= _REQUESTS
        )
