"""Takeovers while workers go, come again and serve, and while siblings hang, disagree or break."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import pytest

from indexer.actions import ForgetReason
from indexer.dump import rank_lines
from indexer.dump_format import EndLine, HeaderLine, RankEndLine, RankLine, write_line
from indexer.limits import IndexLimits
from indexer.match import Prompt
from indexer.trust import Trust
from protocol import EventBatch, EventSource, Rank, WorkerId
from router.bootstrap import Bootstrap, BootstrapOutcome, Heirs
from router.registry import Registry, RegistryLimits
from router.sibling import SiblingError
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, worker_spec
from tests.router.brains import TestFleet, fleet, source

W0 = WorkerId("w0")
R0, R1 = Rank(W0, 0), Rank(W0, 1)
LOADED, UNKNOWN = BootstrapOutcome.LOADED, BootstrapOutcome.UNKNOWN
SEQ = 41
Told: TypeAlias = Sequence[bytes] | Exception | None
MANY = 1_500


def dump_of(*ranks: Rank, count: int = MANY) -> list[bytes]:
    """What a sibling tells of ranks of one worker, each with the same blocks."""
    told = SmallFleet(worker_spec(ranks[0].worker, num_ranks=2), limits=IndexLimits())
    lines = [write_line(HeaderLine())]
    for rank in ranks:
        store = SmallFleet("x")
        store.store("x", names(0, count), blocks(0, count))
        snapshot = store.index.snapshot(Rank(WorkerId("x")), 100.0)
        assert snapshot is not None
        spec = told.index.snapshot(rank, 100.0)
        assert spec is not None
        mine = replace(snapshot, rank=rank, spec=spec.spec, seq=SEQ, trust=Trust.EXACT)
        lines += map(write_line, rank_lines(mine, [(SEQ, 1)], 100.0))
    return [*lines, write_line(EndLine(ranks=len(ranks)))]


def empty_dump(*ranks: Rank) -> list[bytes]:
    """The same of ranks that hold nothing, which is known for sure."""
    lines = [write_line(HeaderLine())]
    for worker, dp_rank in ranks:
        rank = RankLine(
            worker=worker, dp_rank=dp_rank, url=f"http://{worker}", model="m", engine="unknown",
            version=None, trust=Trust.EXACT, seq=SEQ, digests=[(SEQ, 1)],
        )  # fmt: skip
        lines += [write_line(rank), write_line(RankEndLine(held=0))]
    return [*lines, write_line(EndLine(ranks=len(ranks)))]


class Tellers:
    """Dumps by sibling: lines, an error to raise, or None for one that hangs. A gate holds the first one up.

    Args:
        stop_at: line before which the first dump waits for ``go``.
    """

    def __init__(self, told: dict[str, Told], stop_at: int | None = None) -> None:
        self._told = told
        self._stop_at = stop_at
        self.is_held_up, self.go = asyncio.Event(), asyncio.Event()
        self.asked: list[str] = []

    async def dump(self, url: str, worker: str) -> AsyncGenerator[bytes, None]:
        self.asked.append(worker)
        is_first = len(self.asked) == 1
        told = self._told.get(f"{url}/{worker}", self._told.get(url, ()))
        if told is None:
            await asyncio.Event().wait()
        if isinstance(told, Exception):
            raise told
        for number, line in enumerate(told or ()):
            if is_first and number == self._stop_at:
                self.is_held_up.set()
                await self.go.wait()
            yield line


@dataclass
class Scene:
    """A registry whose workers are taken over, and the one that does it."""

    one: TestFleet
    bootstrap: Bootstrap

    def is_paused(self, where: EventSource) -> bool:
        return self.one.brains.subscriber.is_paused(where)

    def trust(self, rank: Rank = R0) -> Trust:
        return self.one.brains.index.trust(rank, self.one.clock())

    def num_held(self) -> int:
        return self.one.brains.index.stats().held

    def check(self) -> None:
        self.one.check()
        self.bootstrap.check()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Turn the loop until it is so."""
        async with asyncio.timeout(20.0):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0)


@asynccontextmanager
async def scene(
    tellers: Tellers, *siblings: str, timeout_s: float = 20.0, limits: RegistryLimits | None = None
) -> AsyncIterator[Scene]:
    """Everything of a router but its sockets; it must not end."""
    with fleet(limits) as one:
        brains = one.brains
        heirs = Heirs(brains.index, brains.intake, brains.subscriber)
        bootstrap = Bootstrap(heirs, tellers, siblings, timeout_s, one.clock)
        one.registry = Registry(replace(brains, bootstrap=bootstrap), limits or RegistryLimits())
        running = asyncio.ensure_future(bootstrap.run())
        try:
            yield Scene(one, bootstrap)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()


def length_on(one: TestFleet, rank: Rank) -> int:
    (match,) = one.brains.index.match(prompt(blocks(0, MANY)), [rank], one.clock())
    return match.gpu_blocks


@pytest.mark.parametrize("stop_at", range(1, 9))
async def test_a_worker_that_is_removed_while_it_is_loaded_leaves_nothing(stop_at: int) -> None:
    tellers = Tellers({"s": dump_of(R0)}, stop_at)
    async with scene(tellers, "s") as now:
        now.one.learn("w0", sources=(source(),))
        await tellers.is_held_up.wait()
        now.one.registry.remove(W0)
        now.check()
        other = now.one.learn("w1", sources=(source("w1", 6000),))
        tellers.go.set()
        await now.until(lambda: not now.is_paused(source("w1", 6000)))
        now.check()
        assert now.num_held() == 0
        assert length_on(now.one, Rank(other)) == 0
        assert now.bootstrap.outcomes == {UNKNOWN: 1}  # of the other one
        assert not now.is_paused(source())


@pytest.mark.parametrize("stop_at", range(1, 9))
@pytest.mark.parametrize("how", ["added again", "other version", "other sources"])
async def test_a_worker_that_begins_anew_while_it_is_loaded_is_loaded_anew(
    how: str, stop_at: int
) -> None:
    tellers = Tellers({"s": dump_of(R0)}, stop_at)
    async with scene(tellers, "s") as now:
        where, before = source(), {"version": "1"}
        now.one.learn("w0", sources=(where,), **before)
        await tellers.is_held_up.wait()
        if how == "added again":
            now.one.registry.remove(W0)
        if how == "other version":
            before = {"version": "2"}
        if how == "other sources":
            where = source(port=5600)
        now.one.learn("w0", sources=(where,), **before)
        now.check()
        assert now.is_paused(where)
        tellers.go.set()
        await now.until(lambda: not now.is_paused(where))
        now.check()
        assert length_on(now.one, R0) == MANY
        assert now.trust() is Trust.JOINED
        assert now.bootstrap.outcomes == {LOADED: 1}
        assert tellers.asked == ["w0", "w0"]


async def test_only_the_last_takeover_of_a_worker_begins() -> None:
    tellers = Tellers({"s": dump_of(R0, count=2)})
    async with scene(tellers, "s") as now:
        for _ in range(50):
            now.one.learn("w0", sources=(source(),))
            now.one.registry.remove(W0)
        now.one.learn("w0", sources=(source(),))
        await now.until(lambda: not now.is_paused(source()))
        assert tellers.asked == ["w0"]
        now.check()


@pytest.mark.parametrize(
    ("what", "outcome"), [("rank", BootstrapOutcome.FAILED), ("source", UNKNOWN)]
)
async def test_a_rank_that_is_forgotten_while_it_is_loaded_is_not_loaded(
    what: str, outcome: BootstrapOutcome
) -> None:
    tellers = Tellers({"s": dump_of(R0)}, 5)
    async with scene(tellers, "s") as now:
        now.one.learn("w0", sources=(source(),))
        await tellers.is_held_up.wait()
        assert now.num_held() > 0
        if what == "rank":
            now.one.brains.index.forget(R0, ForgetReason.WORKER_REMOVED, now.one.clock())
        else:
            now.one.brains.intake.remove_source(source(), now.one.clock())
        tellers.go.set()
        await now.until(lambda: now.bootstrap.outcomes)
        now.check()
        assert now.num_held() == 0
        assert now.bootstrap.outcomes == {outcome: 1}


@pytest.mark.parametrize("is_empty", [True, False])
async def test_siblings_are_asked_until_every_rank_is_taken_over(is_empty: bool) -> None:
    """And what two of them tell is loaded once, however empty it is."""
    told = empty_dump if is_empty else dump_of
    tellers = Tellers({"a": told(R0), "b": told(R0, R1), "c": told(R0, R1)})
    async with scene(tellers, "a", "b", "c") as now:
        now.one.learn("w0", sources=(source(),), num_ranks=2)
        await now.until(lambda: not now.is_paused(source()))
        now.check()
        assert now.bootstrap.outcomes == {LOADED: 2}
        assert [now.trust(rank) for rank in (R0, R1)] == [Trust.JOINED, Trust.JOINED]
        assert [length_on(now.one, rank) for rank in (R0, R1)] == [0 if is_empty else MANY] * 2


@pytest.mark.parametrize("is_empty", [True, False])
async def test_a_rank_that_is_told_twice_spoils_the_dump(is_empty: bool) -> None:
    told = empty_dump if is_empty else dump_of
    lines = told(R0)
    tellers = Tellers({"s": [*lines[:-1], *lines[1:-1], write_line(EndLine(ranks=2))]})
    async with scene(tellers, "s") as now:
        now.one.learn("w0", sources=(source(),))
        await now.until(lambda: not now.is_paused(source()))
        now.check()
        assert now.bootstrap.outcomes == {BootstrapOutcome.FAILED: 1}
        assert now.trust() is Trust.JOINED  # what was whole stays


async def test_a_stream_that_has_begun_is_not_taken_over() -> None:
    tellers = Tellers({"s": dump_of(R0)}, 0)
    async with scene(tellers, "s") as now:
        now.one.learn("w0", sources=(source(),))
        await tellers.is_held_up.wait()
        assert now.one.brains.intake.resume(R0, 7, [(7, 1)], Trust.EXACT, now.one.clock())
        tellers.go.set()
        await now.until(lambda: now.bootstrap.outcomes)
        now.check()
        assert now.bootstrap.outcomes == {UNKNOWN: 1}
        assert now.num_held() == 0


async def test_traffic_while_a_worker_is_loaded() -> None:
    """Requests are planned, dispatched, answered and reported; the index is whole after each line."""
    lines = dump_of(R0)
    observed = b'{"kind":"observed","space":0,"keys":[%d],"age_s":%d}'
    late = [observed % (10**9 + age, age) for age in (9, 5, 2)]
    lines[-2:-2] = late
    with fleet() as one:
        asked = 0

        class Busy(Tellers):
            async def dump(self, url: str, worker: str) -> AsyncGenerator[bytes, None]:
                nonlocal asked
                async for line in super().dump(url, worker):
                    yield line
                    asked += 1
                    serve(now.one, prompt(blocks(50_000 * asked, 6)))
                    now.check()

        async with scene(Busy({"s": lines}), "s") as now:
            now.one.learn("w0", sources=(source(),))
            await now.until(lambda: not now.is_paused(source()))
            now.check()
            assert now.bootstrap.outcomes == {LOADED: 1}
            assert length_on(now.one, R0) == MANY
            now.one.brains.index.tick(now.one.clock() + 1e6)
            now.check()
        one.check()


def serve(one: TestFleet, asked: Prompt) -> None:
    index, at = one.brains.index, one.clock()
    (match,) = index.match(asked, [R0], at)
    index.predict(R0, asked, at)
    one.clock.now += 0.5
    index.observe(R0, asked, one.clock())
    index.report(R0, asked, 4, match, at, one.clock())
    index.apply(Rank(WorkerId("gone")), EventBatch(0.0, []), one.clock())


@pytest.mark.parametrize("fault", [RuntimeError("bug"), KeyError("bug"), AssertionError("bug")])
async def test_a_fault_within_a_takeover_is_one_workers_alone(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    told: dict[str, Told] = {"s/w0": fault, "s": dump_of(Rank(WorkerId("w1")), count=3)}
    with caplog.at_level(logging.ERROR):
        async with scene(Tellers(told), "s") as now:
            for name in ("w0", "w1"):
                now.one.learn(name, sources=(source(name),))
            await now.until(lambda: now.bootstrap.outcomes.total() == 2)
            assert now.bootstrap.outcomes == {BootstrapOutcome.BROKEN: 1, LOADED: 1}
            assert not any(now.is_paused(source(name)) for name in ("w0", "w1"))
            now.check()
    assert len(caplog.records) == 1
    assert "w0" in caplog.text


async def test_waiting_for_room_at_a_sibling_takes_nothing_from_a_workers_share() -> None:
    told: dict[str, Told] = {f"s/w{i}": None for i in range(4)}
    told["s/w4"] = dump_of(Rank(WorkerId("w4")), count=3)
    async with scene(Tellers(told), "s", timeout_s=0.5) as now:
        for i in range(5):
            now.one.learn(f"w{i}", sources=(source(f"w{i}"),))
        await now.until(lambda: now.bootstrap.outcomes.total() == 5)
        assert now.bootstrap.outcomes == {BootstrapOutcome.TIMED_OUT: 4, LOADED: 1}


async def test_waiting_for_room_has_an_end() -> None:
    async with scene(Tellers({"s": None}), "s", timeout_s=0.05) as now:
        wheres = [source(f"w{i}") for i in range(30)]
        for i, where in enumerate(wheres):
            now.one.learn(f"w{i}", sources=(where,))
        await now.until(lambda: not any(map(now.is_paused, wheres)))
        assert now.bootstrap.outcomes == {BootstrapOutcome.TIMED_OUT: 30}
        now.check()


async def test_readiness_waits_for_a_sibling_no_longer_than_its_bound() -> None:
    limits = RegistryLimits(min_ready=1, recovery_s=30)
    async with scene(Tellers({"s": None}), "s", limits=limits) as now:
        now.one.learn("w0", sources=(source(has_replay=True),))
        for seconds in (0.0, 29.0):
            now.one.tick(seconds)
            assert not now.one.registry.readiness().is_ready
        now.one.tick(1.0)
        assert now.one.registry.readiness().is_ready
        assert now.is_paused(source(has_replay=True))


async def test_a_sibling_that_is_not_there_is_asked_once() -> None:
    async with scene(Tellers({"s": SiblingError("down")}), "s") as now:
        now.one.learn("w0", sources=(source(),))
        await now.until(lambda: not now.is_paused(source()))
        assert now.bootstrap.outcomes == {BootstrapOutcome.FAILED: 1}
