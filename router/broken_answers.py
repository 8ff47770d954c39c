"""Answers that break off, told in the log: at most one line a second, with the number of those left out.

A worker that dies breaks off all its answers at once; the first line names it, and the next one, however
much later it comes, says how many there were between them.
"""

import logging

from protocol import WorkerId
from router.plain_text import plain

logger = logging.getLogger(__name__)

_PAUSE_S = 1.0


class BrokenAnswers:
    """What was told last, and how many were not. ``now`` is monotonic seconds."""

    __slots__ = ("_num_untold", "_told_at")

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._num_untold = 0

    def broke_off(self, request_id: str, worker: WorkerId, reason: str, now: float) -> None:
        """An answer of the worker ended before its end."""
        if self._told_at is not None and now - self._told_at < _PAUSE_S:
            self._num_untold += 1
            return
        others = f"; {self._num_untold} more since the last such line" if self._num_untold else ""
        logger.warning(
            "the answer to request %s broke off at worker %s: %s%s",
            request_id, worker, " ".join(plain(reason).split()), others,
        )  # fmt: skip
        self._told_at, self._num_untold = now, 0
