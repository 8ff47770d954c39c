"""The chosen rank is told to every engine in the way that it takes, and to none in any other."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol import Rank, WorkerId
from router.headers import DP_RANK
from router.rank_pinning import pinned
from scoring import Decision, Plan, RankPin, Reason
from tests.router.stub_engine import StubEngine, stub_engine
from tests.router.stub_worker import StubRequest
from tests.router.test_service import Service, service

MESSAGES = [{"role": "user", "content": "hello there"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": MESSAGES},
    "/v1/completions": {"model": "m", "prompt": [1, 2, 3, 4, 5]},
    "/v1/messages": {"model": "m", "max_tokens": 4, "messages": MESSAGES},
    "/v1/responses": {"model": "m", "input": "hello there"},
    "/generate": {"input_ids": [1, 2, 3, 4, 5]},
    "/v1/score": {"model": "m", "text_1": "a", "text_2": "b"},
}
CHAT, COMPLETIONS, ANTHROPIC, RESPONSES, GENERATE, SCORE = BODIES
RANKS = {"/metrics": "".join(f'vllm:num_requests_running{{engine="{n}"}} 0.0\n' for n in range(2))}


def as_sglang(engine: StubEngine, version: str) -> None:
    info: Any = engine.pages["/server_info"]
    info |= {"version": version, "dp_size": 2}


def as_vllm(engine: StubEngine, version: str) -> None:
    del engine.pages["/server_info"]
    engine.pages |= {"/version": {"version": version}, **RANKS}


@asynccontextmanager
async def served(kind: str, version: str) -> AsyncIterator[tuple[StubEngine, Service]]:
    async with stub_engine() as engine:
        (as_sglang if kind == "sglang" else as_vllm)(engine, version)
        async with service(engine, policy="round_robin") as router:
            await router.ready()
            yield engine, router


def told(request: StubRequest) -> dict[str, Any]:
    """In which ways a rank is named."""
    body = json.loads(request.body)
    fields = {n: body[n] for n in ("routed_dp_rank", "data_parallel_rank") if n in body}
    headers = [int(value) for value in request.values("x-data-parallel-rank")]
    return {**fields, **({"header": headers[0]} if headers else {})}


HEADER, FIELD, OLD = "header", "routed_dp_rank", "data_parallel_rank"
OPENAI = dict.fromkeys((CHAT, COMPLETIONS, ANTHROPIC), HEADER)


@pytest.mark.parametrize(
    ("kind", "version", "ways"),
    [
        ("sglang", "0.5.23", {**OPENAI, RESPONSES: HEADER, GENERATE: FIELD}),
        ("sglang", "0.5.17", {**OPENAI, GENERATE: FIELD}),
        ("sglang", "0.5.9", dict.fromkeys((CHAT, COMPLETIONS, GENERATE), OLD)),
        ("sglang", "0.4.10", {GENERATE: OLD}),
        ("vllm", "0.32.0", {**OPENAI, SCORE: HEADER}),
    ],
)
async def test_engine_version_and_route(kind: str, version: str, ways: dict[str, str]) -> None:
    async with served(kind, version) as (engine, router):
        seen = set()
        for path, fields in BODIES.items():
            for _ in range(2):
                body = json.dumps(fields, indent=1).encode()
                headers = {"content-type": "application/json"}
                answer = await router.data.post(path, content=body, headers=headers)
                assert answer.status_code == 200, (path, answer.text)
                request = engine.worker.requests[-1]
                rank = answer.headers.get("x-kvroute-dp-rank")
                if path in ways:
                    assert told(request) == {ways[path]: int(rank)}, path
                    seen.add((path, rank))
                else:
                    assert (told(request), rank) == ({}, None), path
                if ways.get(path) in (FIELD, OLD):
                    field = f',"{ways[path]}":{rank}}}'.encode()
                    assert request.body == body[:-1] + field
                    assert request.values("content-length") == [str(len(request.body))]
                else:
                    assert request.body == body
                assert answer.headers["x-kvroute-worker"] == engine.name
    assert seen == {(path, rank) for path in ways for rank in ("0", "1")}  # each is really chosen


async def test_a_client_does_not_choose_the_rank() -> None:
    async with served("sglang", "0.5.23") as (engine, router):
        for _ in range(4):
            headers = {"x-data-parallel-rank": "7"}
            answer = await router.data.post(CHAT, json=BODIES[CHAT], headers=headers)
            assert told(engine.worker.requests[-1]) == {
                "header": int(answer.headers["x-kvroute-dp-rank"])
            }
            answer = await router.data.post(GENERATE, json={**BODIES[GENERATE], FIELD: 7})
            assert told(engine.worker.requests[-1]) == {
                FIELD: int(answer.headers["x-kvroute-dp-rank"])
            }


async def test_a_worker_of_one_rank_is_told_nothing() -> None:
    async with stub_engine() as engine, service(engine) as router:
        await router.ready()
        for path, fields in BODIES.items():
            body = json.dumps(fields).encode()
            headers = {"content-type": "application/json"}
            answer = await router.data.post(path, content=body, headers=headers)
            assert answer.headers["x-kvroute-dp-rank"] == "0"
            assert (engine.worker.requests[-1].body, told(engine.worker.requests[-1])) == (body, {})


def plan_of(pin: RankPin, rank: int = 5, ranks: range = range(4, 8)) -> Plan:
    decision = Decision("r", 0.0, "m", "chat", "cost", None, None, Reason.TIE, ())
    return Plan(1, Rank(WorkerId("w"), rank), "http://w", decision, ranks, 0, pin)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"text":"a"}', b'{"text":"a","routed_dp_rank":1}'),
        (b'{"text":"a}"} \r\n\t', b'{"text":"a}","routed_dp_rank":1} \r\n\t'),
        (b'\xef\xbb\xbf{"text":"a"}', b'\xef\xbb\xbf{"text":"a","routed_dp_rank":1}'),
        (b'{"routed_dp_rank":0}', b'{"routed_dp_rank":0,"routed_dp_rank":1}'),
        (b"{}", None),
        (b" { } ", None),
        (b"", None),
        (b"[1]", None),
        ('{"text":"a"}'.encode("utf-16-le"), None),
        ('{"text":"a"}'.encode("utf-16-be"), None),
        ('{"text":"a"}'.encode("utf-32"), None),
    ],
)
def test_a_field_is_all_that_changes(body: bytes, expected: bytes | None) -> None:
    headers = ((b"x-data-parallel-rank", b"7"), (b"a", b"b"))
    assert pinned(plan_of(RankPin.FIELD), headers, body) == (headers, expected or body)


def test_a_header_goes_instead_of_the_clients() -> None:
    headers = ((DP_RANK, b"7"), (b"a", b"b"), (DP_RANK, b"8"))
    found, body = pinned(plan_of(RankPin.HEADER), headers, b"x")
    assert (list(found), body) == ([(b"a", b"b"), (DP_RANK, b"1")], b"x")
    assert pinned(plan_of(RankPin.NONE), headers, b"x") == (headers, b"x")
    one = plan_of(RankPin.HEADER, 4, range(4, 5))
    assert pinned(one, headers, b"x") == (headers, b"x")


def test_a_compressed_body_is_left_alone() -> None:
    body = b"\x1f\x8b:}"
    for value in (b"gzip", b"zstd"):
        headers = ((b"content-encoding", value),)
        assert pinned(plan_of(RankPin.FIELD), headers, body) == (headers, body)
