"""Dry runs on the control port: what they tell, what they refuse, and decisions to be read later."""

import contextlib
import json

import pytest

from prompt import Api, bundled_model_dir, view_request
from router.prompt_reader import ReadRequest
from router.request_plan import plan_request
from scoring import NoCandidateError, PlanRequest, PolicyName
from tests.router.brains import fleet
from tests.router.control_port import control

CHAT = {"messages": [{"role": "user", "content": "hello there"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
GOES_ON = {"model": "m", "input": "hi", "previous_response_id": "r1"}
PICTURE = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": "look at this"}, IMAGE]}]
}


async def test_a_dry_run_tells_where_and_why_and_books_nothing() -> None:
    with fleet() as one:
        one.learn("w0", tokenizer=str(bundled_model_dir()))
        spec = one.registry.specs()[0]
        one.brains.shelf.put(spec, one.brains.shelf.load(spec))
        one.brains.shelf.keep([spec])
        async with control(one) as (client, counters):
            for body in (CHAT, {"prompt": "hello"}, {"text": "hello"}, {"input_ids": [1, 2]}):
                decision = (await client.post("/debug/route", json=body)).json()
                assert decision["chosen"] == {"worker": "w0", "dp_rank": 0}
                assert decision["prompt_tokens"] > 0
                assert (decision["unrouted_by"], decision["is_cut"]) == (None, False)
            decision = (await client.post("/debug/route", json=PICTURE)).json()
            assert (decision["unrouted_by"], decision["is_cut"]) == (None, True)
            named = await client.post("/debug/route?api=responses&all=1", json=GOES_ON)
            assert named.json()["api"] == "responses"
            assert named.json()["unrouted_by"] == "unsupported_api"
            assert (await client.get("/debug/decisions")).json() == []
        assert not counters.unrouted
        assert not one.brains.planner.counters().open_plans


async def test_a_dry_run_hears_the_session_in_body_and_header() -> None:
    with fleet(policy=PolicyName.CONSISTENT_HASH) as one:
        for number in range(12):
            one.learn(f"w{number}")
        async with control(one) as (client, _):
            body = {"prompt": "x", "session_id": "s"}
            headers = {"x-session-id": "s"}
            answers = [
                await client.post("/debug/route", json=body),
                await client.post("/debug/route", json={"prompt": "y"}, headers=headers),
            ]
        first, second = (answer.json() for answer in answers)
        assert first["reason"] == second["reason"] == "hashed"
        assert first["chosen"] == second["chosen"]


@pytest.mark.parametrize(
    ("content", "query", "status"),
    [
        (b"{", "", 400),
        (b"[]", "", 400),
        (b"null", "?api=other", 400),
        (b"7", "?api=other", 400),
        (b'{"other": 1}', "", 400),
        (b"{", "?api=chat", 400),
        (b"{}", "?api=nonsense", 422),
        (b"x" * 10_001, "", 413),
    ],
)
async def test_what_a_dry_run_refuses(content: bytes, query: str, status: int) -> None:
    with fleet() as one:
        async with control(one) as (client, _):
            answer = await client.post(f"/debug/route{query}", content=content)
            assert answer.status_code == status
            if status != 422:
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


SURROGATE = json.dumps("\ud800")
ODD_BODIES = [
    f'{{"model": {SURROGATE}, "prompt": "hi"}}',
    f'{{"model": {SURROGATE}, "prompt": {SURROGATE}}}',
    f'{{"model": "m", "prompt": {SURROGATE}}}',
    f'{{"model": "m", "cache_salt": {SURROGATE}, "prompt": "some words to be cached"}}',
    f'{{"model": "m", "session_id": {SURROGATE}, "messages": [{{"role": {SURROGATE}}}]}}',
    f'{{"model": "m", {SURROGATE}: 1, "text": "x"}}',
    f'{{"model": "m", "max_tokens": {10**400}, "prompt": "x"}}',
    '{"model": "m", "temperature": NaN, "prompt": "x"}',
    '{"model": "m\\u0000\\n", "prompt": [1, 2, 3]}',
    '{"model": "' + "n" * 5000 + '", "prompt": [1]}',
]


@pytest.mark.parametrize("body", ODD_BODIES)
@pytest.mark.parametrize("query", ["", "?api=completions", "?api=chat&all=1"])
async def test_a_dry_run_takes_what_the_data_port_takes(body: str, query: str) -> None:
    with fleet() as one:
        one.learn("w0", tokenizer=str(bundled_model_dir()))
        spec = one.registry.specs()[0]
        one.brains.shelf.put(spec, one.brains.shelf.load(spec))
        one.brains.shelf.keep([spec])
        async with control(one) as (client, _):
            answer = await client.post(f"/debug/route{query}", content=body)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) < 4096


@pytest.mark.parametrize("body", ODD_BODIES)
async def test_decisions_can_be_read_whatever_clients_send(body: str) -> None:
    with fleet() as one:
        one.learn("w0")
        read = ReadRequest(view_request(Api.COMPLETIONS, body.encode()))
        question = plan_request(Api.COMPLETIONS, "a/b", read, 0.0)
        with contextlib.suppress(NoCandidateError):
            one.brains.planner.plan(question, one.clock.now)
        async with control(one) as (client, _):
            (listed,) = (await client.get("/debug/decisions")).json()
            assert len(listed["model"]) <= 513
            for path in ("a/b", "a%2Fb"):
                found = await client.get(f"/debug/decisions/{path}")
                assert found.json() == listed


async def test_decisions_by_request_and_newest_first() -> None:
    with fleet() as one:
        one.learn("w0")
        for name in ("a", "b"):
            one.brains.planner.plan(PlanRequest(name, "chat", "m", None, 0.0), one.clock.now)
        async with control(one) as (client, _):
            listed = (await client.get("/debug/decisions")).json()
            assert [decision["request_id"] for decision in listed] == ["b", "a"]
            assert len((await client.get("/debug/decisions?limit=1")).json()) == 1
            assert len((await client.get("/debug/decisions?limit=100000")).json()) == 2
            assert (await client.get("/debug/decisions?limit=0")).status_code == 422
            assert (await client.get("/debug/decisions/a")).json()["chosen"]["worker"] == "w0"
            assert (await client.get("/debug/decisions/none")).status_code == 404
