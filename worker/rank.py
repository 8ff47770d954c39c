"""One rank in real time: an engine, its publisher, and the answers that are waited for.

The engine's clock runs ``speed`` times as fast as the wall's. One task steps the engine whenever it is
due, publishes what it flushes and hands its tokens to the answers.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worker.engine import Engine
from worker.publisher import EventPublisher
from worker.request import EngineRequest, TokenOutput


class AnswerCutError(Exception):
    """The worker stops; no more tokens come."""


class Answer:
    """The tokens of one request as they come; at most ``max_new_tokens`` are ever queued."""

    def __init__(self) -> None:
        self._outputs: list[TokenOutput] = []
        self._is_cut = False
        self._has_news = asyncio.Event()

    def put(self, output: TokenOutput) -> None:
        """Take one token."""
        self._outputs.append(output)
        self._has_news.set()

    def cut(self) -> None:
        """Let nothing come any more."""
        self._is_cut = True
        self._has_news.set()

    async def tokens(self) -> list[TokenOutput]:
        """Wait for the next token, and take all that have come with it; at least one.

        Raises:
            AnswerCutError: the worker stops.
        """
        await self._has_news.wait()
        if self._is_cut:
            raise AnswerCutError
        self._has_news.clear()
        outputs, self._outputs = self._outputs, []
        return outputs


class RankRunner:
    """Drives one engine.

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
            answer.cut()

    def flush_cache(self) -> bool:
        """Empty the cache; False while there are requests."""
        is_flushed = self.engine.flush_cache(self.now())
        self._due.set()
        return is_flushed

    async def run(self) -> None:
        """Step the engine until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._due.clear()
            self._step()
            now = self.now()
            wakeup = self.engine.next_wakeup(now)
            if wakeup is None:
                await self._due.wait()
                continue
            timer = loop.call_later((wakeup - now) / self._speed, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()

    def _step(self) -> None:
        result = self.engine.step(self.now())
        for flush in result.flushes:
            if self.publisher is not None:
                self.publisher.publish(flush.events)
        for output in result.outputs:
            answer = self._answers.get(output.request_id)
            if answer is not None:
                answer.put(output)
