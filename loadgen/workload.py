"""A seeded synthetic workload: shared system prompts, chats of several turns, bursts over one document.

    system prompt of an app ┬ turn 1 ── answer 1 ── turn 2 ── answer 2 ── turn 3      a chat
                            └ turn 1 …                                               another chat
    system prompt of an app ─ document ┬ question 1                                  a burst:
                                       ├ question 2                                  all at once
                                       └ question 3

Each chat has a user of its own, whom its requests name; those of a burst name nobody.
Apps are chosen by popularity (the n-th in 1/n of the cases of the first). Answers are written into the
workload, so a run is the same whatever the servers say. Everything follows from the seed.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from loadgen.spec_error import SpecError
from loadgen.timed_request import TimedRequest, chat

Message = dict[str, str]


class Arrivals(StrEnum):
    """How starts of chats are spread: evenly at random, or in clumps of the same mean rate."""

    POISSON = "poisson"
    CLUMPED = "clumped"


_CLUMPED_SHAPE = 0.25  # of the gamma distribution of gaps: their deviation is twice their mean


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Sizes of a workload. Lengths are in words of about one token each.

    Attributes:
        num_requests: in all; the last chats may be cut short by it.
        duration_s: over which chats start; turns may run on after it.
        num_apps: system prompts.
        turns: of a chat, mean; at least 1 and at most twice the mean.
        think_s: between turns of a chat, mean.
        num_bursts: each over a document of its own, spread evenly over the duration.
        max_tokens: to generate a request.
    """

    num_requests: int = 240
    duration_s: float = 8.0
    num_apps: int = 4
    system_words: int = 600
    turns: float = 5.0
    turn_words: int = 120
    answer_words: int = 80
    think_s: float = 0.8
    arrivals: Arrivals = Arrivals.POISSON
    num_bursts: int = 2
    burst_requests: int = 8
    document_words: int = 1200
    max_tokens: int = 12

    def __post_init__(self) -> None:
        for name in ("num_requests", "num_apps", "system_words", "turn_words", "max_tokens"):
            if getattr(self, name) < 1:
                raise SpecError(name, "at least 1")
        if not 0 < self.duration_s < math.inf:
            raise SpecError("duration_s", "above 0")
        if not 0 <= self.think_s < math.inf:
            raise SpecError("think_s", "at least 0")
        if not 1 <= self.turns < math.inf:
            raise SpecError("turns", "at least 1")
        in_bursts = self.num_bursts * self.burst_requests
        if in_bursts > self.num_requests:
            raise SpecError("num_requests", f"at least {in_bursts}, which the bursts alone are")


def synthesise(
    spec: WorkloadSpec, words: Sequence[str], model: str, *, seed: int = 0
) -> list[TimedRequest]:
    """Make the workload. O(words written).

    Args:
        words: with their leading spaces, as a ``Vocabulary`` has them.
        model: named in each request.

    Returns:
        ``num_requests`` chats in order of time, times from 0.
    """
    writer = _Writer(spec, words, model, random.Random(seed))
    requests = [request for index in range(spec.num_bursts) for request in writer.burst(index)]
    num_bursts = len(requests)
    num_chats = 0
    while len(requests) < spec.num_requests:
        requests += writer.chat(num_chats)
        num_chats += 1
    in_chats = requests[num_bursts : spec.num_requests]
    starts = _spread(in_chats, spec, random.Random(seed + 1))
    timed = requests[:num_bursts] + starts
    return sorted(timed, key=lambda request: request.at_s)


def _spread(
    in_chats: Sequence[TimedRequest], spec: WorkloadSpec, rng: random.Random
) -> list[TimedRequest]:
    """Give each chat its start; the turns inside have their times from there."""
    groups = list(dict.fromkeys(request.group for request in in_chats))
    shape = 1.0 if spec.arrivals is Arrivals.POISSON else _CLUMPED_SHAPE
    gaps = [rng.gammavariate(shape, 1.0) for _ in groups]
    scale = spec.duration_s / max(sum(gaps), 1e-9)
    starts = dict(zip(groups, accumulate([0.0, *gaps]), strict=False))
    return [
        TimedRequest(
            starts[request.group] * scale + request.at_s, request.path, request.body, request.group
        )
        for request in in_chats
    ]


class _Writer:
    """Writes chats and bursts, drawing from one generator in order."""

    def __init__(
        self, spec: WorkloadSpec, words: Sequence[str], model: str, rng: random.Random
    ) -> None:
        self._spec = spec
        self._words = words
        self._model = model
        self._rng = rng
        self._apps = [self._write(spec.system_words) for _ in range(spec.num_apps)]
        self._popularity = list(accumulate(1 / (rank + 1) for rank in range(spec.num_apps)))

    def chat(self, index: int) -> list[TimedRequest]:
        """One chat's turns, timed from its own start."""
        spec, rng = self._spec, self._rng
        messages = [self._system()]
        num_turns = min(round(2 * spec.turns), max(1, round(rng.expovariate(1 / spec.turns))))
        at_s = 0.0
        requests: list[TimedRequest] = []
        for _ in range(num_turns):
            messages.append(_message("user", self._write(self._vary(spec.turn_words))))
            name = f"chat-{index}"
            requests.append(self._request(at_s, messages, name, user=name))
            messages.append(_message("assistant", self._write(self._vary(spec.answer_words))))
            at_s += rng.expovariate(1 / spec.think_s) if spec.think_s else 0.0
        return requests

    def burst(self, index: int) -> list[TimedRequest]:
        """Questions about one document, all at the same instant."""
        spec = self._spec
        at_s = spec.duration_s * (index + 0.5) / spec.num_bursts
        document = _message("user", self._write(spec.document_words))
        read = _message("assistant", self._write(4))
        opening = [self._system(), document, read]
        return [
            self._request(
                at_s,
                [*opening, _message("user", self._write(self._vary(spec.turn_words)))],
                f"burst-{index}",
            )
            for _ in range(spec.burst_requests)
        ]

    def _system(self) -> Message:
        (app,) = self._rng.choices(self._apps, cum_weights=self._popularity)
        return _message("system", app)

    def _request(
        self, at_s: float, messages: Sequence[Message], group: str, *, user: str | None = None
    ) -> TimedRequest:
        path, body = chat(self._model, messages, self._spec.max_tokens, user=user)
        return TimedRequest(at_s, path, body, group)

    def _vary(self, num_words: int) -> int:
        return max(1, round(num_words * self._rng.uniform(0.5, 1.5)))

    def _write(self, num_words: int) -> str:
        return "".join(self._rng.choices(self._words, k=num_words))


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
