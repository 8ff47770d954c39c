"""Pages of other origins: who says which may ask, and what they are told."""

import json

import pytest
from pydantic import ValidationError

from router.client_keys import ClientKeys
from router.config import load_config
from router.cors import Cors
from tests.router.front_door import WireAnswer, ask, front_door
from tests.router.stub_worker import answering, response, stub_worker
from tests.router.test_client_keys import entry

PAGE = "https://chat.example"
OPEN = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Allow-Credentials", "true"))
WORKER = answering(response(b"{}", headers=OPEN))


def asks(origin: str = PAGE, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [("Origin", origin), ("Access-Control-Request-Method", "POST"), *more]


def allowed(answer: WireAnswer) -> list[str]:
    return answer.values("access-control-allow-origin")


async def test_by_default_workers_say() -> None:
    async with stub_worker(WORKER) as worker, front_door(worker.url) as door:
        answer = await ask(door, "OPTIONS", headers=asks(), body=None)
        assert (answer.status, allowed(answer)) == (200, ["*"])
        assert worker.requests[0].method == "OPTIONS"
        assert allowed(await ask(door, headers=asks())) == ["*"]
        own = await ask(door, "GET", "/v1/models", asks(), None)
        assert (own.status, allowed(own)) == (200, [])


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models", "/x"])
async def test_preflights_are_answered_here_without_a_key(target: str) -> None:
    fields = ("Access-Control-Request-Headers", "authorization, content-type")
    keys, cors = ClientKeys([entry()]), Cors(origins=("https://other.example", PAGE), max_age_s=5)
    async with stub_worker(WORKER) as worker, front_door(worker.url, keys=keys, cors=cors) as door:
        answer = await ask(door, "OPTIONS", target, asks(PAGE, fields), None)
        assert (answer.status, answer.body, allowed(answer)) == (204, b"", [PAGE])
        assert answer.values("access-control-allow-headers") == [fields[1]]
        assert "POST" in answer.values("access-control-allow-methods")[0]
        assert answer.values("access-control-max-age") == ["5"]
        assert answer.values("vary") == ["Origin"]
        for stranger in (
            "https://evil.example",
            "null",
            f"{PAGE}.evil.example",
            "http://chat.example",
        ):
            refused = await ask(door, "OPTIONS", target, asks(stranger), None)
            assert (refused.status, allowed(refused)) == (403, [])
            assert json.loads(refused.body)["error"]["code"] == "not_allowed"
        assert not worker.requests


async def test_answers_bear_our_word_in_place_of_the_workers() -> None:
    keys, cors = ClientKeys([entry()]), Cors(origins=(PAGE,))
    known = ("Authorization", "Bearer key-a")
    async with stub_worker(WORKER) as worker, front_door(worker.url, keys=keys, cors=cors) as door:
        ours = await ask(door, headers=[("Origin", PAGE), known])
        assert (ours.status, allowed(ours)) == (200, [PAGE])
        assert ours.values("access-control-allow-credentials") == []
        assert "x-request-id" in ours.values("access-control-expose-headers")[0]
        unknown = await ask(door, headers=[("Origin", PAGE)])
        assert (unknown.status, allowed(unknown)) == (401, [PAGE])
        for headers in ([known], [("Origin", "https://evil.example"), known]):
            other = await ask(door, headers=headers)
            assert (other.status, allowed(other), other.values("vary")) == (200, [], ["Origin"])
        assert (
            await ask(door, "OPTIONS", headers=[known, ("Origin", PAGE)], body=None)
        ).status == 200
        assert len(worker.requests) == 4
        await door.settled()


async def test_everybody_or_nobody() -> None:
    async with stub_worker(WORKER) as worker:
        async with front_door(worker.url, cors=Cors(origins=("*",))) as door:
            assert allowed(await ask(door, "OPTIONS", headers=asks("null"), body=None)) == ["*"]
            assert allowed(await ask(door, headers=asks())) == ["*"]
        async with front_door(worker.url, cors=Cors(origins=())) as door:
            assert (await ask(door, "OPTIONS", headers=asks(), body=None)).status == 403
            assert allowed(await ask(door, headers=asks())) == []


def test_origins_are_configured() -> None:
    environ = {"KVROUTE_CORS__ORIGINS": f"{PAGE}, http://localhost:3000"}
    assert load_config(None, {}, environ).cors.origins == (PAGE, "http://localhost:3000")
    assert load_config(None, {}, {}).cors.origins is None
    for wrong in (f"{PAGE}/", "chat.example", "https://a,b", "https://*.example/x", ""):
        with pytest.raises(ValidationError):
            Cors(origins=(wrong,))
