"""When a fleet is at rest: workers idle, and the router level with them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from loadgen import ControlPort, ControlPortError, Fleet
from loadgen.refill.fleet_watch import FleetWatch, UnsettledError
from tests.loadgen.serving import serving


@dataclass
class Stage:
    """One server that is a worker and the router: what each says next, the last word repeated."""

    truths: list[tuple[bool, int]]
    applied: list[int | None]
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/debug/residency":
            is_idle, last_seq = self.truths.pop(0) if len(self.truths) > 1 else self.truths[0]
            return web.json_response({"ranks": [rank_truth(last_seq, is_idle=is_idle)]})
        applied = self.applied.pop(0) if len(self.applied) > 1 else self.applied[0]
        rank = {"dp_rank": 0, "trust": "exact", "last_seq": applied, "unknown_removals": {}}
        return web.json_response([{"worker": request.host, "ranks": [rank]}])


def rank_truth(last_seq: int, *, is_idle: bool) -> dict[str, object]:
    return {
        "dp_rank": 0,
        "GPU": ["7"],
        "CPU_PINNED": [],
        "last_seq": last_seq,
        "is_idle": is_idle,
        "counters": {"tokens_refilled": 64},
    }


@asynccontextmanager
async def watching(stage: Stage, settle_s: float) -> AsyncGenerator[FleetWatch, None]:
    async with serving(stage.answer) as url, aiohttp.ClientSession() as session:
        fleet = Fleet(url, url, (url,), session)
        yield FleetWatch(fleet, ControlPort(url, session), settle_s)


async def test_waits_for_the_workers_and_then_for_the_router() -> None:
    stage = Stage([(False, 3), (True, 4)], [None, 3, 4])
    async with watching(stage, 10.0) as watch:
        resting = await watch.at_rest()
    assert resting.total("tokens_refilled") == 64
    assert [rank.last_seq for rank in resting.ranks] == [4]
    assert stage.asked[:3] == ["/debug/residency", "/debug/residency", "/debug/workers"]
    assert stage.asked.count("/debug/workers") == 3


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Stage([(False, 3)], [3]), "is busy"),
        (Stage([(True, 3)], [2]), "published 3, the router applied 2"),
        (Stage([(True, 3)], [None]), "published 3, the router applied None"),
    ],
)
async def test_says_who_does_not_come_to_rest(stage: Stage, words: str) -> None:
    async with watching(stage, 0.05) as watch:
        with pytest.raises(UnsettledError, match=words):
            await watch.at_rest()


async def test_a_worker_that_does_not_answer_is_named() -> None:
    async with aiohttp.ClientSession() as session:
        fleet = Fleet("", "", ("http://127.0.0.1:1",), session)
        with pytest.raises(ControlPortError, match=r"127\.0\.0\.1:1/debug/residency"):
            await FleetWatch(fleet, ControlPort("", session), 1.0).at_rest()
