"""Session affinity: a conversation stays on the rank that it began on, for as long as that can serve it.

    session ── none named ──▶ by cost
       ├────── new, or idle too long ──▶ by cost, and kept there
       ├────── its rank may be chosen ──▶ there, however busy
       └────── its rank is gone, drains, is unhealthy, or failed this request ──▶ by cost, and kept there

A name means a session of its own in each model.
"""

from collections import OrderedDict
from random import Random
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from indexer.match import Prompt
from scoring.decision import Reason
from scoring.plain_policies import LowestCost
from scoring.ranking import Ranking
from scoring.weighing import Weighing
from scoring.worker_table import RankRow

MAX_SESSIONS = 65_536
MAX_IDLE_S = 3_600.0


class _Home(NamedTuple):
    """Where a session is kept, and since when it is idle, monotonic seconds."""

    row: RankRow
    used_at: float


class SessionAffinity:
    """The rank that took the session's last request; for a new session the one of the lowest cost.

    At ``max_sessions`` the one that is idle longest goes. The row of a rank that has left is never
    among the options again, so its sessions move as they come. 250 bytes a session.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS, max_idle_s: float = MAX_IDLE_S) -> None:
        self._max_sessions = max_sessions
        self._max_idle_s = max_idle_s
        self._by_cost = LowestCost()
        self._homes: OrderedDict[int, _Home] = OrderedDict()  # idle longest first

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:
        """The session's own rank first, the others by cost."""
        by_cost = self._by_cost.order(weighing, rng, now)
        key = _key(weighing)
        if key is None:
            return by_cost
        home = self._homes.get(key)
        if home is None or now - home.used_at > self._max_idle_s:
            return Ranking(by_cost.options, Reason.SESSION_NEW)
        for index, option in enumerate(by_cost.options):
            if option.row is home.row:
                by_cost.options.insert(0, by_cost.options.pop(index))
                return Ranking(by_cost.options, Reason.SESSION)
        return Ranking(by_cost.options, Reason.SESSION_MOVED)

    def chose(self, weighing: Weighing, row: RankRow, now: float) -> None:
        """Keep the session there. O(1), amortised over the sessions that end."""
        key = _key(weighing)
        if key is None:
            return
        homes = self._homes
        homes[key] = _Home(row, now)
        homes.move_to_end(key)
        if len(homes) > self._max_sessions:
            homes.popitem(last=False)
        while now - next(iter(homes.values())).used_at > self._max_idle_s:
            homes.popitem(last=False)

    def ended(self, row: RankRow, prompt: Prompt | None) -> None:
        """A session outlives its requests."""

    def forget(self, row: RankRow) -> None:
        """Its sessions move when they come, or go with age."""

    def check(self) -> None:
        """Verify that the table is bounded and in the order of use."""
        times = [home.used_at for home in self._homes.values()]
        assert len(times) <= self._max_sessions, len(times)
        assert times == sorted(times), times


def _key(weighing: Weighing) -> int | None:
    session = weighing.request.session
    if session is None:
        return None
    named = f"{weighing.resolution.model}\0{session}"
    return xxh3_64_intdigest(named.encode("utf-8", "surrogatepass"))
