"""Who made what clients will ask for by its id: a response, a file, a batch.

An engine keeps such things in its own memory, so whoever made one has to serve every later request for it. An
id is remembered from the answer in which it was given, until it has not been used for ``max_idle_s``, and while
there is room: beyond ``max_ids`` the one that was not used the longest goes. Both are counted. An id that two
workers gave is that of the later one.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from protocol import WorkerId

MAX_ID_BYTES = 256
"""Of an id; a longer one is not remembered."""


class Lost(StrEnum):
    """Why an id is not known, or no more."""

    EVICTED = "evicted"  # for want of room
    IDLE = "idle"  # not used for long
    UNREADABLE = "unreadable"  # the answer is coded, or does not tell it at its beginning


@dataclass(frozen=True, slots=True)
class MadeIdLimits:
    """What is remembered of who made what.

    Attributes:
        max_ids: beyond them the id that was not used the longest goes; 250 to 500 bytes each.
        max_idle_s: an id that is not used for so long is forgotten.
    """

    max_ids: int = 100_000
    max_idle_s: float = 24 * 3_600.0


class _Made(NamedTuple):
    worker: WorkerId
    used_at: float


class MadeIds:
    """Ids and who gave them. Every call is O(1), amortised; ``now`` is monotonic seconds.

    Attributes:
        lost: ids by why they are not known.
    """

    def __init__(self, limits: MadeIdLimits = MadeIdLimits()) -> None:
        self._limits = limits
        self._made: dict[str, _Made] = {}  # in the order of their last use
        self.lost: Counter[Lost] = Counter(dict.fromkeys(Lost, 0))

    def __len__(self) -> int:
        return len(self._made)

    def note(self, made_id: str, worker: WorkerId, now: float) -> None:
        """The worker has made something of this id."""
        self._made.pop(made_id, None)
        self._made[made_id] = _Made(worker, now)
        while self._made:
            oldest, made = next(iter(self._made.items()))
            if now - made.used_at > self._limits.max_idle_s:
                self.lost[Lost.IDLE] += 1
            elif len(self._made) > self._limits.max_ids:
                self.lost[Lost.EVICTED] += 1
            else:
                return
            del self._made[oldest]

    def maker(self, made_id: str, now: float) -> WorkerId | None:
        """Who made it; None where that is not known. Counts as use."""
        made = self._made.pop(made_id, None)
        if made is None:
            return None
        if now - made.used_at > self._limits.max_idle_s:
            self.lost[Lost.IDLE] += 1
            return None
        self._made[made_id] = made._replace(used_at=now)
        return made.worker

    def check(self) -> None:
        """Verify that there are no more than may be, in the order of their last use."""
        assert len(self._made) <= self._limits.max_ids, len(self._made)
        times = [made.used_at for made in self._made.values()]
        assert times == sorted(times), times
