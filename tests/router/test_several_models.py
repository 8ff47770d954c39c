"""A whole router before engines of different models, and of a part of the work."""

import json

import httpx

from tests.router.stub_engine import StubEngine, stub_engine, until
from tests.router.stub_worker import Peer, Script, response
from tests.router.test_engine_part import make_partial
from tests.router.test_service import Service, service

CHAT = "/v1/chat/completions"


def named(name: str) -> Script:
    """An engine that says who it is."""

    async def script(peer: Peer) -> None:
        await peer.send(response(json.dumps({"by": name}).encode()))

    return script


def card(model: str, parent: str | None = None) -> dict[str, object]:
    return {"id": model, "object": "model", "parent": parent, "max_model_len": 100}


async def by(router: Service, model: object, path: str = CHAT) -> str:
    """Who answers a request for this model."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    answer = await router.data.post(path, json=body)
    if answer.status_code == httpx.codes.NOT_FOUND:
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "model_not_found")
        return ""
    assert answer.status_code == httpx.codes.OK, answer.text
    return str(answer.json()["by"])


async def test_models_aliases_and_adapters_are_names_of_whom_they_mean() -> None:
    async with (
        stub_engine(model="alpha", script=named("one")) as one,
        stub_engine(model="org/beta", script=named("two")) as two,
        service(one, two) as router,
    ):
        one.pages["/v1/models"] = {
            "data": [card("alpha"), card("short"), card("lora", "alpha")],
        }
        two.pages["/v1/models"] = {"data": [card("org/beta")]}
        await router.ready()
        expected = {
            "alpha": "one",
            "short": "one",
            "lora": "one",
            "alpha:lora": "one",
            "org/beta": "two",
            "beta": "",
            "org/beta:lora": "",
        }
        paths = (CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings", "/rerank", "/v1/score")
        for path in paths:
            assert {name: await by(router, name, path) for name in expected} == expected, path
        listed = (await router.data.get("/v1/models")).json()["data"]
        assert [entry["id"] for entry in listed] == ["alpha", "short", "lora", "org/beta"]
        for entry in listed:
            assert {"object", "created", "owned_by", "max_model_len"} <= entry.keys()
            found = await router.data.get(f"/v1/models/{entry['id']}")
            assert found.json() == entry
        assert (await router.data.get("/v1/models/beta")).status_code == httpx.codes.NOT_FOUND


async def test_an_engine_of_a_part_of_the_work_is_refused_by_its_word() -> None:
    async with (
        stub_engine(script=named("whole")) as whole,
        stub_engine(script=named("prefill")) as prefill,
        stub_engine(script=named("decode")) as decode,
    ):
        make_partial(prefill)
        make_partial(decode, "decode")
        async with service(whole, prefill, ready={"min_workers": 1}) as router:
            await router.ready()
            await until_refused(router, prefill)
            refused = await router.control.post("/workers", json={"url": decode.url})
            assert refused.status_code == httpx.codes.BAD_REQUEST
            assert "decode-only" in refused.json()["detail"]
            assert {await by(router, "m") for _ in range(10)} == {"whole"}
            assert prefill.num_served == decode.num_served == 0
            assert len(await router.workers()) == 2
            gone = await router.control.delete(f"/workers/{prefill.name}")
            assert gone.status_code == httpx.codes.NO_CONTENT


async def until_refused(router: Service, engine: StubEngine) -> None:
    shown: list[dict[str, object]] = []

    async def look() -> None:
        shown[:] = (await router.control.get("/workers")).json()

    await look()
    while next(one for one in shown if one["url"] == engine.url)["state"] != "refused":
        await look()
    (worker,) = (one for one in shown if one["url"] == engine.url)
    assert "prefill-only" in str(worker["error"])


async def test_both_sides_speak_ipv6() -> None:
    async with (
        stub_engine(script=named("six"), host="[::1]") as engine,
        service(engine, host="::") as router,
    ):
        await router.ready()
        assert await by(router, "m") == "six"
        port = router.data.base_url.port
        async with httpx.AsyncClient(base_url=f"http://[::1]:{port}") as client:
            answer = await client.post(CHAT, json={"model": "m", "messages": []})
        assert answer.json() == {"by": "six"}
        assert answer.headers["x-kvroute-worker"] == engine.name
        assert engine.worker.requests[-1].values("host") == [engine.name]
        await until(lambda: engine.num_served == 2)
