"""One rank in real time: an engine, its publisher, and the answers that are waited for.

The engine's clock runs ``speed`` times as fast as the wall's. One task steps the engine whenever it is
due, publishes what it flushes and hands its tokens to the answers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worker.engine import Engine
from worker.publisher import EventPublisher
from worker.request import EngineRequest, TokenOutput

logger = logging.getLogger(__name__)

_PAUSE_S = 0.1
"""After a failure, so that an engine which fails at nothing does not spin."""


class AnswerCutError(Exception):
    """The worker stops; no more tokens come."""


class EngineFailedError(AnswerCutError):
    """The engine failed, and began anew without its requests."""


class Answer:
    """The tokens of one request as they come; at most ``max_new_tokens`` are ever queued."""

    def __init__(self) -> None:
        self._outputs: list[TokenOutput] = []
        self._cut: AnswerCutError | None = None
        self._has_news = asyncio.Event()

    def put(self, output: TokenOutput) -> None:
        """Take one token."""
        self._outputs.append(output)
        self._has_news.set()

    def cut(self, error: AnswerCutError) -> None:
        """Let nothing come any more; whoever waits gets ``error``."""
        self._cut = error
        self._has_news.set()

    async def tokens(self) -> list[TokenOutput]:
        """Wait for the next token, and take all that have come with it; at least one.

        Raises:
            AnswerCutError: the worker stops, or its engine failed.
        """
        await self._has_news.wait()
        if self._cut is not None:
            raise self._cut
        self._has_news.clear()
        outputs, self._outputs = self._outputs, []
        return outputs


class RankRunner:
    """Drives one engine. One that fails is replaced by a new and empty one: its requests end with 500, its
    events with a clear, and the worker lives on.

    Args:
        publisher: None = events are dropped.
        clock: monotonic seconds of the wall.
        speed: engine seconds in one of them.
    """

    def __init__(
        self,
        dp_rank: int,
        engine: Engine,
        publisher: EventPublisher | None,
        clock: Callable[[], float],
        speed: float,
    ) -> None:
        self.dp_rank = dp_rank
        self.engine = engine
        self.publisher = publisher
        self._clock = clock
        self._speed = speed
        self._answers: dict[str, Answer] = {}
        self._due = asyncio.Event()
        self.num_failures = 0

    def now(self) -> float:
        """Engine time."""
        return self._clock() * self._speed

    @contextmanager
    def opened(self, request: EngineRequest) -> Iterator[Answer]:
        """Submit a request; leaving early cancels it.

        Raises:
            QueueFullError, RequestTooLargeError: see ``Engine.submit``.
        """
        self.engine.submit(request, self.now())
        answer = Answer()
        self._answers[request.request_id] = answer
        self._due.set()
        try:
            yield answer
        finally:
            del self._answers[request.request_id]
            if self.engine.cancel(request.request_id, self.now()):
                self._due.set()

    def cut_answers(self) -> None:
        """End everything that is waited for, unfinished."""
        for answer in self._answers.values():
            answer.cut(AnswerCutError())

    def flush_cache(self, *, keeps_host: bool = False) -> bool:
        """Empty the cache; False while there are requests."""
        is_flushed = self.engine.flush_cache(self.now(), keeps_host=keeps_host)
        self._due.set()
        return is_flushed

    def pause(self) -> None:
        """Start no further batch."""
        self.engine.pause()

    def resume(self) -> None:
        """Go on."""
        self.engine.resume(self.now())
        self._due.set()

    async def run(self) -> None:
        """Step the engine until cancelled."""
        while True:
            self._due.clear()
            try:
                self._step()
                wakeup = self.engine.next_wakeup(self.now())
            except Exception:  # the supervisor of the engine: no request ends the worker
                logger.exception("the engine of rank %d failed and begins anew", self.dp_rank)
                self._begin_anew()
                await asyncio.sleep(_PAUSE_S)
                continue
            await self._until(wakeup)

    async def _until(self, wakeup: float | None) -> None:
        """Wait for engine time ``wakeup``, or for a request."""
        if wakeup is None:
            await self._due.wait()
            return
        delay_s = (wakeup - self.now()) / self._speed
        timer = asyncio.get_running_loop().call_later(delay_s, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    def _begin_anew(self) -> None:
        """A new engine says first of all that its cache is empty."""
        self.num_failures += 1
        self.engine = self.engine.renewed()
        for answer in self._answers.values():
            answer.cut(EngineFailedError())

    def _step(self) -> None:
        result = self.engine.step(self.now())
        for flush in result.flushes:
            if self.publisher is not None:
                self.publisher.publish(flush.events)
        for output in result.outputs:
            answer = self._answers.get(output.request_id)
            if answer is not None:
                answer.put(output)
