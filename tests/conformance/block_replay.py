"""Drives an engine over a block pool with the requests of a recording, one after the other or together.

Virtual time, one batch of events a step. Answers are what the real engine answered; where no line tells it, the last
token of the prompt again and again, as its model did.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from protocol import EngineModel, KvEvent
from worker.blocks import BlockConfig
from worker.engine import Engine
from worker.engine_settings import EngineSettings
from worker.request import EngineRequest
from worker.sampler import Sampler
from worker.tree import TreeConfig

FAST = EngineModel(prefill_tokens_per_s=1e6, load_back_tokens_per_s=1e9)
"""A copy to CPU is complete before the next step, as it was on the recorded machine."""
_LATER_S = 1e-7


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        answer: as recorded; empty = the last token of the prompt, for ever.
        is_late: it arrives while the first step of the one listed before it runs.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    answer: tuple[int, ...] = ()
    adapter: str | None = None
    salt: str | None = None
    is_late: bool = False


@dataclass(frozen=True)
class Reset:
    """``/reset_prefix_cache``, sleep or pause, while nothing runs."""


Action = Asked | Reset | Sequence[Asked]


@dataclass(frozen=True, slots=True)
class RecordedAnswers(Sampler):
    """Answers by prompt."""

    known: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    def answer(self, prompt: tuple[int, ...]) -> Iterator[int]:
        """What was recorded, then the last token of the prompt."""
        return chain(self.known.get(prompt, ()), repeat(prompt[-1]))


@dataclass
class BlockReplay:
    """One engine, and the batches that it has published.

    Attributes:
        cached: of each request in the order of its first token, what it found in the cache.
    """

    engine: Engine
    batches: list[list[KvEvent]] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    now: float = 0.0
    num_asked: int = 0

    def run(self, actions: Sequence[Action]) -> "BlockReplay":
        """Do one after the other."""
        for action in actions:
            self.now += 1.0
            match action:
                case Reset():
                    assert self.engine.flush_cache(self.now)
                case Asked():
                    self._serve([action])
                case _:
                    self._serve(action)
        return self

    def _serve(self, together: Sequence[Asked]) -> None:
        for asked in together:
            if asked.is_late:
                self._step(self.now)
            late_s = _LATER_S if asked.is_late else 0.0
            self.num_asked += 1
            request = EngineRequest(
                f"r{self.num_asked}",
                asked.prompt,
                asked.max_tokens,
                extra_key=asked.adapter,
                cache_salt=asked.salt,
            )
            self.engine.submit(request, self.now + late_s)
        while (wakeup := self.engine.next_wakeup(self.now)) is not None:
            self._step(max(self.now, wakeup))

    def _step(self, now: float) -> None:
        self.now = now
        result = self.engine.step(now)
        self.engine.check()
        self.batches += [list(flush.events) for flush in result.flushes]
        self.cached += [one.usage.cached_tokens for one in result.outputs if one.usage is not None]


def block_replay(blocks: BlockConfig, actions: Sequence[Action]) -> BlockReplay:
    """An engine that has done all of it."""
    settings = EngineSettings(TreeConfig(blocks.block_size, 0), FAST, blocks=blocks)
    asked = [one for action in actions for one in _asked(action)]
    sampler = RecordedAnswers((0,), (0,), {one.prompt: one.answer for one in asked})
    return BlockReplay(Engine(settings, sampler)).run(actions)


def _asked(action: Action) -> Sequence[Asked]:
    match action:
        case Reset():
            return ()
        case Asked():
            return (action,)
        case _:
            return action
