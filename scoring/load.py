"""Load: what each rank is busy with, booked when a request is dispatched and released exactly once.

A lease is one request's claim on a rank. It passes through at most two phases:

    PREFILL ── first byte, or time ──▶ DECODE ── release ──▶ CLOSED
       └──────────────── release ─────────────────────────────▲

In PREFILL it weighs its uncached prompt tokens, and their work: tokens stretched by what attention
over a long prompt costs, so that work ÷ short-prompt rate is time. In DECODE it weighs one running
request. A streamed request stays in PREFILL until its first byte. A request that is not streamed has
no first byte: its weight *falls* in a straight line over the time in which the rank is expected to
prefill it, a pure function of ``now``.

Every number is an integer, so that what is booked and released cancels exactly.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from protocol import Rank


class Phase(Enum):
    """Where a lease stands."""

    PREFILL = "prefill"
    DECODE = "decode"
    CLOSED = "closed"


class Fall(NamedTuple):
    """When the prefill of a request that is not streamed is expected to run, monotonic seconds."""

    starts_at: float
    ends_at: float

    def remaining(self, now: float) -> float:
        """Share of the prefill that is still to be done, 1 to 0."""
        if now >= self.ends_at:
            return 0.0
        if now <= self.starts_at:
            return 1.0
        return (self.ends_at - now) / (self.ends_at - self.starts_at)


@dataclass(frozen=True, slots=True)
class RankLoad:
    """What one rank is busy with.

    Attributes:
        in_flight: requests dispatched and not finished.
        queued_prefill_tokens: uncached prompt tokens whose first answer token is still out.
        decode_requests: those of ``in_flight`` that are past their prefill.
        max_in_flight: of those that compute, beyond which it is given none; None where there is no bound.
    """

    rank: Rank
    in_flight: int
    queued_prefill_tokens: int
    decode_requests: int
    max_in_flight: int | None = None


class Lease:
    """One request's claim on a rank; made by `LoadBook.open`."""

    __slots__ = ("book", "fall", "phase", "takes_place", "tokens", "work")

    def __init__(
        self, book: "LoadBook", tokens: int, work: int, fall: Fall | None, *, takes_place: bool
    ) -> None:
        self.book = book
        self.tokens = tokens
        self.work = work
        self.fall = fall
        self.takes_place = takes_place
        self.phase = Phase.PREFILL

    def begin_decode(self) -> bool:
        """Prefill is over: drop its weight. Idempotent, O(1).

        Returns:
            False if it was over before.
        """
        if self.phase is not Phase.PREFILL:
            return False
        self.book.end_prefill(self)
        self.phase = Phase.DECODE
        return True

    def release(self) -> bool:
        """Give back all that is booked, in whatever phase. O(1).

        Returns:
            False if it was given back before; nothing changes then.
        """
        if self.phase is Phase.CLOSED:
            return False
        self.begin_decode()
        self.phase = Phase.CLOSED
        self.book.in_flight -= 1
        if not self.takes_place:
            self.book.placeless -= 1
        return True


class LoadBook:
    """All open leases on one rank, as sums.

    Attributes:
        in_flight: open leases.
        placeless: those of them that take no place of the rank's capacity.
        steady_tokens, steady_work: of the streamed ones in prefill.
        prefilling: number of leases in prefill, those whose weight has fallen to 0 included.
    """

    __slots__ = (
        "_falling",
        "in_flight",
        "placeless",
        "prefilling",
        "rank",
        "steady_tokens",
        "steady_work",
    )

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.in_flight = 0
        self.placeless = 0
        self.prefilling = 0
        self.steady_tokens = 0
        self.steady_work = 0
        self._falling: dict[Lease, Fall] = {}

    @property
    def taken(self) -> int:
        """Places of the rank's capacity that are taken."""
        return self.in_flight - self.placeless

    def open(
        self, tokens: int, work: int, fall: Fall | None = None, *, takes_place: bool = True
    ) -> Lease:
        """Book one request.

        Args:
            tokens: uncached prompt tokens.
            work: the same stretched by attention, in tokens at the short-prompt rate.
            fall: when the weight falls; None for a streamed request, which keeps it until
                `Lease.begin_decode`.
            takes_place: it counts towards the rank's capacity.
        """
        lease = Lease(self, tokens, work, fall, takes_place=takes_place)
        self.in_flight += 1
        if not takes_place:
            self.placeless += 1
        self.prefilling += 1
        if fall is None:
            self.steady_tokens += tokens
            self.steady_work += work
        else:
            self._falling[lease] = fall
        return lease

    def end_prefill(self, lease: Lease) -> None:
        """Drop a lease's prefill weight; `Lease.begin_decode` calls it, once."""
        self.prefilling -= 1
        if lease.fall is None:
            self.steady_tokens -= lease.tokens
            self.steady_work -= lease.work
        else:
            del self._falling[lease]

    def queued(self, now: float) -> tuple[int, int]:
        """Prefill tokens and work booked at ``now``. O(leases whose weight falls)."""
        tokens, work = self.steady_tokens, self.steady_work
        for lease, fall in self._falling.items():
            share = fall.remaining(now)
            tokens += round(lease.tokens * share)
            work += round(lease.work * share)
        return tokens, work

    def falling(self) -> list[Lease]:
        """Leases in prefill whose weight falls, oldest first."""
        return list(self._falling)

    def settle(self, now: float) -> None:
        """Move leases whose weight has fallen to 0 on to decode. O(leases whose weight falls)."""
        if self._falling:
            for lease in [one for one, fall in self._falling.items() if now >= fall.ends_at]:
                lease.begin_decode()

    def load(self, now: float, max_in_flight: int | None = None) -> RankLoad:
        """The sums as a value, beside the bound that holds for them."""
        tokens, _ = self.queued(now)
        done = sum(1 for fall in self._falling.values() if now >= fall.ends_at)
        num_decoding = self.in_flight - self.prefilling + done
        return RankLoad(self.rank, self.in_flight, tokens, num_decoding, max_in_flight)

    def check(self, leases: list[Lease]) -> None:
        """Verify that the sums are those of ``leases``, the open ones on this rank."""
        waiting = [lease for lease in leases if lease.phase is Phase.PREFILL]
        steady = [lease for lease in waiting if lease.fall is None]
        state = (self.rank, self.in_flight, self.prefilling, self.steady_tokens, self.steady_work)
        assert all(lease.book is self and lease.phase is not Phase.CLOSED for lease in leases), (
            state
        )
        assert self.in_flight == len(leases), state
        assert self.placeless == sum(not lease.takes_place for lease in leases), self.placeless
        assert self.prefilling == len(waiting), state
        assert self.steady_tokens == sum(lease.tokens for lease in steady), state
        assert self.steady_work == sum(lease.work for lease in steady), state
        assert set(self._falling) == {one for one in waiting if one.fall is not None}, state
