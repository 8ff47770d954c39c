"""The seam between relay and brain: four calls, plain values both ways.

The relay parses, tokenizes and forwards; the brain knows who holds what, who is busy, and decides. The
relay holds nothing of the brain's but a plan, so several relays, or another proxy, can share one brain.
Every plan is finished exactly once, whatever became of the request.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from protocol import Rank, TokenBytes, WorkerId
from scoring.decision import Decision
from scoring.rank_pin import RankPin


class NoCandidateError(Exception):
    """No rank can take the request. ``decision`` says who was excluded and why."""

    def __init__(self, decision: Decision) -> None:
        super().__init__("no worker can take this request")
        self.decision = decision


class TooManyRequestsError(Exception):
    """As many requests are in flight as the brain will account for; nothing was booked."""


class OutcomeKind(StrEnum):
    """How a forwarded request ended."""

    COMPLETED = "completed"
    CLIENT_CLOSED = "client_closed"
    CLIENT_ERROR = "client_error"  # 4xx of the worker: not its fault
    BUSY = "busy"  # 429 or 503: back-pressure
    WORKER_ERROR = "worker_error"  # other 5xx, or an error event in the stream
    CONNECT_FAILED = "connect_failed"
    BROKEN_OFF = "broken_off"  # died before its answer or within it
    STALE = "stale"  # a kept connection broke at once: perhaps it was closed while it idled
    TIMED_OUT = "timed_out"


class PlanRequest(NamedTuple):
    """What the brain needs to know of one request.

    Attributes:
        api: chat, completions, generate, responses, messages, or other.
        model: as the request names it; None where it names none.
        tokens: the prompt as the engine will see it; None routes on load alone.
        is_cut: there are only those before its first image; how many follow is not known.
        is_approximate: ``tokens`` only stand for those of the prompt (`prompt.approximate`).
        adapter: as a field of its own names it.
        extra_key: keeps the request's cache apart, as ``cache_salt`` does; no event tells it.
        is_recomputed: the engine computes the whole prompt, whatever it has cached of it: its reuse proves nothing.
        max_output_tokens: as asked for; None where it is not bounded.
        excluded: ranks that have failed this request.
        time: wall clock, seconds since the epoch, for the record.
        timing_us: what the relay spent so far, by stage (render, tokenize).
        session: what the request belongs with, as its client names it; bounded by the relay.
        client: the name of the key that it came with, for the record; None where keys are not asked for.
        keeper: the only worker that can serve it, for it keeps what the request is about; None for any.
    """

    request_id: str
    api: str
    model: str | None
    tokens: TokenBytes | None
    time: float
    adapter: str | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    max_output_tokens: int | None = None
    is_streaming: bool = False
    excluded: frozenset[Rank] = frozenset()
    timing_us: Mapping[str, int] = MappingProxyType({})
    is_cut: bool = False
    is_recomputed: bool = False
    session: str | None = None
    client: str | None = None
    is_approximate: bool = False
    keeper: WorkerId | None = None


class Plan(NamedTuple):
    """Where the request goes. ``plan_id`` names the lease; each attempt is a plan of its own.

    ``dp_ranks`` are those of the worker: beyond one, the request must be pinned to its own, which engines
    count from their first, in the way that ``pin`` names; where that is none, the engine picks one itself, and the
    plan's is the one that the load is booked on.
    ``matched_tokens`` of the prompt are held by the rank, as far as is known.
    """

    plan_id: int
    rank: Rank
    url: str
    decision: Decision
    dp_ranks: range = range(1)
    matched_tokens: int = 0
    pin: RankPin = RankPin.HEADER


class Outcome(NamedTuple):
    """How it ended, with what the engine reported (None where it reported nothing)."""

    kind: OutcomeKind
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Brain(Protocol):
    """All that the relay may ask of the brain. ``now`` is monotonic seconds."""

    def plan(self, request: PlanRequest, now: float) -> Plan:
        """Choose a rank and book its load.

        Raises:
            NoCandidateError: nobody can take it; nothing is booked.
            TooManyRequestsError: too many plans are open; nothing is booked.
        """

    def takers(self, request: PlanRequest) -> frozenset[Rank]:
        """Ranks that may ever take the request, free or not, well or not: for those of them it may wait."""

    def first_byte(self, plan_id: int, now: float) -> None:
        """The first byte of the answer's content came: prefill is over. Idempotent."""

    def finish(self, plan_id: int, outcome: Outcome, now: float) -> None:
        """Release what was booked and learn from the answer. Unknown ids are ignored and counted."""
