"""A rank in real time: an engine that fails costs its requests, never the worker."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.worker.served import small
from worker.engine import Engine
from worker.rank import EngineFailedError, RankRunner
from worker.request import EngineRequest
from worker.sampler import Sampler

POISON = 13


class FailingSampler(Sampler):
    """Fails at the first token of an answer to a prompt with ``POISON`` in it."""

    def answer(self, prompt: tuple[int, ...]) -> Iterator[int]:
        """As the base does, or fail when it is drawn from."""
        if POISON in prompt:
            raise RuntimeError("poison")
        yield from super().answer(prompt)


@asynccontextmanager
async def running() -> AsyncIterator[RankRunner]:
    """A rank of a small worker."""
    engine = Engine(small().engine_settings(), FailingSampler((1,), (2,)))
    runner = RankRunner(0, engine, None, time.monotonic, 50.0)
    task = asyncio.ensure_future(runner.run())
    try:
        yield runner
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def tokens_of(runner: RankRunner, prompt: tuple[int, ...], name: str) -> int:
    """Ask for four tokens; how many came."""
    count = 0
    with runner.opened(EngineRequest(name, prompt, 4)) as answer:
        while count < 4:
            count += len(await answer.tokens())
    return count


async def test_an_engine_that_fails_begins_anew() -> None:
    async with running() as runner:
        assert await tokens_of(runner, (5,) * 40, "before") == 4
        assert runner.engine.tree.residency().device
        beside = asyncio.ensure_future(tokens_of(runner, (6,) * 40, "beside"))
        with pytest.raises(EngineFailedError):
            await tokens_of(runner, (POISON,) * 40, "poison")
        with suppress(EngineFailedError):
            await beside
        assert runner.num_failures == 1
        assert not runner.engine.num_running
        assert await tokens_of(runner, (7,) * 40, "after") == 4
        runner.engine.check()


async def test_what_was_cached_is_cleared_for_those_who_listen() -> None:
    engine = Engine(small().engine_settings(), FailingSampler((1,), (2,))).renewed()
    (flush,) = engine.step(1.0).flushes
    assert [type(event).__name__ for event in flush.events] == ["AllBlocksCleared"]
