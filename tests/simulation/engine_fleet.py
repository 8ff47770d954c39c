"""A fleet of whole simulated engines and the index that listens to them, in virtual time.

    request ─▶ match, predict ─▶ engine ─▶ first byte: observe ─▶ last byte: report
                                   └── flush ─▶ bytes ─▶ delayed, in order ─▶ intake ─▶ index

Engines are the real ones, tree core, storage and prefetch included; events travel as the frames that a
socket would carry. Only sockets, clocks and the choice of a worker are the simulation's own.
"""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice

from indexer import FindingKind, FleetIndex, Intake, Prompt, RankMatch
from protocol import EngineKind, EventSource, Rank, WorkerId, WorkerSpec, live_frames, pack_tokens
from protocol.frames import LiveMessage, replay_frames
from tests.worker.virtual_time import SAMPLER
from worker.batch_log import BatchLog
from worker.engine import Engine
from worker.engine_settings import Flush
from worker.request import EngineRequest, TokenOutput, Usage
from worker.tree import HostMode, TreeConfig

HOST = FindingKind.HOST_STORES_UNANNOUNCED
MODEL_NAME = "m"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    prompt: tuple[int, ...]
    max_new_tokens: int = 1
    extra_key: str | None = None
    cache_salt: str | None = None


@dataclass(slots=True, eq=False)
class _Open:
    """A request under way."""

    ask: Ask
    prompt: Prompt
    at_decision: RankMatch
    decided_at: float
    usage: Usage | None = None


class EngineFleet:
    """Engines by name, all of one page size.

    Args:
        lag_s: events of a flush are heard up to so much later.
        reports: False leaves cached tokens out of the answers.
        before: a fleet of the same engines that has ended; nothing of what it heard is known here, for the
            engines keep nothing to replay.

    Attributes:
        num_decided: requests sent so far.
        num_refilled: of those that are over, the ones served from storage.
        found: evidence of the finding when it first came; None before.
        found_after: ``num_decided`` and ``num_refilled`` at that time.
    """

    def __init__(
        self,
        engines: dict[str, Engine],
        *,
        seed: int = 0,
        lag_s: float = 0.0,
        reports: bool = True,
        before: "EngineFleet | None" = None,
    ) -> None:
        self.engines = engines
        self.rng = random.Random(seed)
        self.now: float = 1_000.0 if before is None else before.now
        self.index = FleetIndex()
        self.intake = Intake(self.index)
        self.num_decided = 0
        self.num_refilled = 0
        self.usages: list[Usage] = []
        self.found: dict[str, int | float | str] | None = None
        self.found_after: tuple[int, int] | None = None
        self.lag_s = lag_s
        self._reports = reports
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._open: dict[str, dict[str, _Open]] = {name: {} for name in engines}
        self._is_late = before is not None
        self._logs: dict[str, BatchLog] = (
            {name: BatchLog(0, "", 10_000) for name in engines} if before is None else before._logs
        )
        self._heard_at = dict.fromkeys(engines, 0.0)
        for name, engine in engines.items():
            self._join(name, engine.settings.tree)

    # ---- what a test does

    def at(self, delay: float, step: Callable[[], None]) -> None:
        """Do something later."""
        self._at(self.now + delay, step)

    def send(self, name: str, ask: Ask) -> None:
        """Decide for a worker and send it a request, now."""
        tokens = pack_tokens(list(ask.prompt))
        prompt = Prompt(tokens, MODEL_NAME, None, ask.cache_salt)
        (at_decision,) = self.index.match(prompt, [rank_of(name)], self.now)
        self.index.predict(rank_of(name), prompt, self.now)
        self.num_decided += 1
        request_id = f"r{self.num_decided}"
        self._open[name][request_id] = _Open(ask, prompt, at_decision, self.now)
        request = EngineRequest(
            request_id, ask.prompt, ask.max_new_tokens, ask.extra_key, ask.cache_salt
        )
        self.engines[name].submit(request, self.now)
        self._step(name)

    def cancel_one(self, name: str) -> None:
        """A client leaves, if there is one."""
        if self._open[name]:
            request_id = self.rng.choice(sorted(self._open[name]))
            del self._open[name][request_id]
            self.engines[name].cancel(request_id, self.now)
            self._step(name)

    def serve(self, name: str, ask: Ask) -> Usage:
        """Send one request and let everything happen."""
        self.send(name, ask)
        self.run()
        return self.usages[-1]

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._agenda:
            at, _, step = heapq.heappop(self._agenda)
            self.now = max(self.now, at)
            step()
        self.index.check()

    def answer(self, name: str, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
        """What the worker answers to a prompt."""
        return tuple(islice(SAMPLER.answer(prompt), length))

    def findings(self) -> dict[str, Mapping[str, int | float | str]]:
        """Evidence by kind, now."""
        return {f.kind.value: f.evidence for f in self.index.findings(self.now)}

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self._look()

    # ---- what follows

    def _at(self, time: float, step: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._order), step))

    def _join(self, name: str, tree: TreeConfig) -> None:
        """An engine that published nothing yet is listened to from its first batch on; any other from here."""
        source = self._source_of(name)
        spec = WorkerSpec(
            WorkerId(name),
            f"http://{name}",
            MODEL_NAME,
            EngineKind.SGLANG,
            block_size=tree.page_size,
            sources=(source,),
            stages_on_host=tree.host_mode is HostMode.BUFFER_ONLY,
        )
        self.index.add_worker(spec, self.now)
        self.intake.add_source(source, self.now)
        self.intake.on_connected(source, self.now)
        for reply in () if self._is_late else self._logs[name].replay(0):
            self.intake.on_replay(source, replay_frames(b"", reply), self.now)
        self._step(name)

    def _step(self, name: str) -> None:
        engine = self.engines[name]
        result = engine.step(self.now)
        for output in result.outputs:
            self._hear_token(name, output)
        for flush in result.flushes:
            self._publish(name, flush)
        wakeup = engine.next_wakeup(self.now)
        if wakeup is not None:
            self._at(wakeup, partial(self._step, name))

    def _hear_token(self, name: str, output: TokenOutput) -> None:
        request = self._open[name].get(output.request_id)
        if request is None:
            return
        delay = self.rng.uniform(0.0, 0.002)
        if output.usage is not None:
            request.usage = output.usage
            self.at(delay, lambda: self.index.observe(rank_of(name), request.prompt, self.now))
        if output.finish is not None:
            del self._open[name][output.request_id]
            self.at(delay + 0.001, partial(self._report, name, request))

    def _report(self, name: str, request: _Open) -> None:
        usage = request.usage
        assert usage is not None
        self.usages.append(usage)
        self.num_refilled += usage.cached_storage_tokens > 0
        self.index.report(
            rank_of(name),
            request.prompt,
            usage.cached_tokens if self._reports else None,
            request.at_decision,
            request.decided_at,
            self.now,
        )
        self._look()

    def _publish(self, name: str, flush: Flush) -> None:
        message = self._logs[name].append(flush.events, self.now)
        assert message is not None
        at = max(self._heard_at[name], self.now + self.rng.uniform(0.0, self.lag_s))
        self._heard_at[name] = at
        self._at(at, partial(self._hear_batch, name, message))

    def _hear_batch(self, name: str, message: LiveMessage) -> None:
        self.intake.on_live(self._source_of(name), live_frames(message), self.now)
        self._look()

    def _source_of(self, name: str) -> EventSource:
        source = source_of(name)
        return replace(source, replay_endpoint=None) if self._is_late else source

    def _look(self) -> None:
        self.index.tick(self.now)
        if self.found is not None:
            return
        for finding in self.index.findings(self.now):
            if finding.kind is HOST:
                self.found = dict(finding.evidence)
                self.found_after = self.num_decided, self.num_refilled


def rank_of(name: str) -> Rank:
    return Rank(WorkerId(name))


def source_of(name: str) -> EventSource:
    return EventSource(rank_of(name), f"tcp://{name}:1", f"tcp://{name}:2")


def prompts_of(number: int, *, tokens: int, shared: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """Prompts that have nothing in common but ``shared``."""
    return [
        (*shared, *(100_000 * (i + 1) + k for k in range(tokens - len(shared))))
        for i in range(number)
    ]
