"""What the data path counts: plain integers, exported by ``metrics`` at scrape time."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)


class RetryReason(StrEnum):
    """Why an attempt was followed by another one."""

    FRESH_CONNECTION = "fresh_connection"  # a kept one broke, nobody else is there: same worker
    CONNECT = "connect"
    RESET = "reset"
    MALFORMED = "malformed"
    BUSY = "busy"
    WORKER_ERROR = "worker_error"
    UNHEALTHY = "unhealthy"  # without a byte when its worker turned unhealthy


class UnroutedReason(StrEnum):
    """Why a request on a routed path was placed by load alone, beside the reasons of ``prompt``."""

    ENCODED_BODY = "encoded_body"


class Bound(StrEnum):
    """Of all requests together, at which one more is refused."""

    IN_FLIGHT = "max_in_flight"
    HELD_BYTES = "max_held_bytes"


class Histogram:
    """Counts by bucket. ``counts`` has one entry more than ``bounds``: the rest."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Prometheus' form: upper bound and how many values are not above it."""
        running = 0
        buckets = []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            buckets.append((bound, running))
        return buckets


class DataCounters:
    """Of one data port, since its start.

    Attributes:
        in_flight: requests being served; a gauge.
        requests: by API and status class (``2xx``, …, ``closed`` where the client left first).
        retries: by ``RetryReason``.
        retries_withheld: likewise, of attempts that were not repeated for want of budget.
        unrouted: requests on routed paths that were placed by load alone, by reason.
        asked: prompts that an engine was to tokenize: ``kept`` from before, ``asked`` for, ``failed`` of these.
        overloaded: requests refused for want of room, by ``Bound``.
        approximate_prompts: requests placed by stand-ins for their tokens.
        cut_prompts: requests placed by what comes before their first image.
        ttft_s: from a request to the first byte of its answer.
        token_s: between two tokens of a stream, as far as the engine reports how many there were.
        broken_streams: answers that broke off after they had begun.
        predicted_cached_tokens, reported_cached_tokens, reported_prompt_tokens: over the answers in
            which the engine reported cached tokens.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.requests: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[str] = Counter()
        self.retries_withheld: Counter[str] = Counter()
        self.unrouted: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.approximate_prompts = 0
        self.cut_prompts = 0
        self.body_too_large = 0
        self.overloaded: Counter[str] = Counter()
        self.broken_streams = 0
        self.internal_errors = 0
        self.predicted_cached_tokens = 0
        self.reported_cached_tokens = 0
        self.reported_prompt_tokens = 0
        self.ttft_s = Histogram(TTFT_BUCKETS_S)
        self.token_s = Histogram(TOKEN_BUCKETS_S)
