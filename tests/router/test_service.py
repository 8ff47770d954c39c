"""The whole router in this process: learned workers, events, both ports, shutdown in order."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from prompt import bundled_model_dir
from protocol import DEFAULT_ENGINE_MODEL
from router.config import load_config
from router.ports import PortInUseError, listen
from router.service import PartFailedError, _run, serve
from router.stop_signal import StopSignal
from router.ticker import Ticker
from router.wiring import wired
from tests.router.front_door import bundled_model
from tests.router.stub_engine import StubEngine, answer_chat, stub_engine, stub_publisher, until
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello there, how are you today?"}]}


@dataclass
class Service:
    """A running router."""

    task: asyncio.Task[None]
    data: httpx.AsyncClient
    control: httpx.AsyncClient

    async def ready(self) -> None:
        """Wait until it is."""
        async with asyncio.timeout(10):
            while not await self.is_ready():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def is_ready(self) -> bool:
        """Does ``/ready`` say so?"""
        try:
            return (await self.data.get("/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async def workers(self) -> list[dict[str, object]]:
        """``/debug/workers``."""
        shown: list[dict[str, object]] = (await self.control.get("/debug/workers")).json()
        return shown


def stop() -> None:
    """As an operator would."""
    os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def service(*engines: StubEngine, **overrides: object) -> AsyncIterator[Service]:
    """Serve before these engines; ended when the block is left, if not before."""
    with listen("127.0.0.1", 0) as free, listen("127.0.0.1", 0) as other:
        ports = [free.getsockname()[1], other.getsockname()[1]]
    settings: dict[str, object] = {
        "host": "127.0.0.1",
        "port": ports[0],
        "control_port": ports[1],
        "workers": [engine.url for engine in engines],
        "ready": {"min_workers": len(engines)},
        "drain": {"window_s": 0.0, "finish_s": 5.0},
    }
    config = load_config(None, settings | overrides, {})
    task = asyncio.get_running_loop().create_task(serve(config))
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    async with (
        httpx.AsyncClient(base_url=urls[0], timeout=10) as data,
        httpx.AsyncClient(base_url=urls[1], timeout=10) as control,
    ):
        try:
            yield Service(task, data, control)
        finally:
            if not task.done():
                stop()
            async with asyncio.timeout(10):
                await task


async def test_a_router_without_workers_says_what_it_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "router.service")
    async with stub_engine() as engine, service(engine) as router:
        await router.ready()
    assert "no workers yet" not in caplog.text
    async with service(ready={"min_workers": 1}) as router:
        await until(lambda: "no workers yet: add --worker or POST /workers" in caplog.text)
        assert not await router.is_ready()


async def test_one_url_is_enough() -> None:
    """Model, ranks, tokenizer and events come from the engine; a prompt goes where its blocks are."""
    tokenizer = str(bundled_model_dir())
    async with (
        stub_publisher() as publisher,
        stub_engine(tokenizer=tokenizer, kv_events=publisher.kv_events) as warm,
        stub_engine(tokenizer=tokenizer) as cold,
        service(warm, cold) as router,
    ):
        await router.ready()
        first = (await router.control.post("/debug/route", json=BODY)).json()
        assert first["prompt_tokens"] >= 8
        assert first["unrouted_by"] is None

        model = bundled_model()
        tokens = model.encode(model.render_chat(BODY), add_special_tokens=False)
        publisher.store(tokens[:8])
        async with asyncio.timeout(5):
            while True:
                (shown,) = (await router.workers())[0]["ranks"]  # type: ignore[misc]
                if shown["last_seq"] == 0:  # type: ignore[has-type]
                    break
        decision = (await router.control.post("/debug/route", json=BODY)).json()
        best = decision["candidates"][0]
        assert (best["worker"], best["gpu_blocks"], best["trust"]) == (warm.name, 2, "exact")
        answers = [await router.data.post("/v1/chat/completions", json=BODY) for _ in range(5)]
        assert {answer.headers["x-kvroute-worker"] for answer in answers} == {warm.name}
        request_id = answers[-1].headers["x-request-id"]
        logged = (await router.control.get(f"/debug/decisions/{request_id}")).json()
        assert logged["chosen"]["worker"] == warm.name
        metrics = (await router.control.get("/metrics")).text
        assert 'kvroute_requests_total{api="chat",status="2xx"} 5.0' in metrics
        assert "kvroute_leases_open 0.0" in metrics


async def test_the_planner_hears_which_rates_are_configured() -> None:
    rates = {"prefill_tokens_per_s": DEFAULT_ENGINE_MODEL.prefill_tokens_per_s}
    async with stub_engine() as engine, service(engine, engine=rates) as router:
        await router.ready()
        decision = (await router.control.post("/debug/route", json=BODY)).json()
    assert decision["rates"]["prefill"] == "configured"
    assert decision["rates"]["fetch"] == "default"


async def test_early_requests_get_503_and_workers_may_come_late() -> None:
    async with stub_engine() as engine:
        engine.is_healthy = False
        async with service(engine) as router:
            await until(lambda: bool(engine.worker.requests))
            early = await router.data.post("/v1/chat/completions", json=BODY)
            assert (early.status_code, early.headers["retry-after"]) == (503, "1")
            assert (await router.data.get("/health")).status_code == 200
            engine.is_healthy = True
            await router.ready()
            assert (await router.data.post("/v1/chat/completions", json=BODY)).status_code == 200


async def test_the_official_client() -> None:
    events = [
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
        b'"choices":[{"index":0,"delta":{"role":"assistant","content":"%s"}}]}\n\n' % word
        for word in (b"one", b" two")
    ]

    async def script(peer: Peer) -> None:
        if b'"stream":true' not in peer.request.body:
            await answer_chat(peer)
            return
        await peer.send(SSE_HEAD)
        for event in [*events, b"data: [DONE]\n\n"]:
            await peer.send(chunk(event))
        await peer.send(LAST_CHUNK)

    async with stub_engine(script=script) as engine, service(engine) as router:
        await router.ready()
        base_url = f"{router.data.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
            user = ChatCompletionUserMessageParam(role="user", content="hello")
            whole = await client.chat.completions.create(model="m", messages=[user])
            assert whole.choices[0].message.content == "ok"
            stream = await client.chat.completions.create(model="m", messages=[user], stream=True)
            assert [part.choices[0].delta.content async for part in stream] == ["one", " two"]
            with pytest.raises(openai.NotFoundError, match="no worker serves the model 'x'"):
                await client.chat.completions.create(model="x", messages=[user])
            assert [model.id async for model in client.models.list()] == ["m"]


async def test_a_worker_with_faults_is_left_alone_and_tried_again() -> None:
    is_broken = True

    async def script(peer: Peer) -> None:
        if is_broken:
            peer.reset()
        else:
            await answer_chat(peer)

    breaker = {"num_faults": 3, "cool_down_s": 1.0}
    async with (
        stub_engine(script=script) as bad,
        stub_engine() as good,
        service(bad, good, breaker=breaker, policy="round_robin") as router,
    ):
        await router.ready()
        for _ in range(30):
            answer = await router.data.post("/v1/chat/completions", json=BODY)
            assert answer.status_code == 200
        assert bad.num_served <= 12  # of 30 without a breaker
        is_broken = False
        served = bad.num_served
        async with asyncio.timeout(5):
            while bad.num_served == served:
                answer = await router.data.post("/v1/chat/completions", json=BODY)
                assert answer.status_code == 200
                await asyncio.sleep(0.05)


async def test_sigterm_turns_unready_serves_on_finishes_streams_and_ends() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        if b'"stream":true' not in peer.request.body:
            await answer_chat(peer)
            return
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    drain = {"window_s": 0.5, "finish_s": 5.0}
    async with stub_engine(script=script) as engine, service(engine, drain=drain) as router:
        await router.ready()
        streaming = BODY | {"stream": True}
        async with router.data.stream("POST", "/v1/chat/completions", json=streaming) as stream:
            lines = stream.aiter_text()
            assert await anext(lines) == "data: 1\n\n"
            stop()
            async with asyncio.timeout(5):
                while await router.is_ready():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await router.data.get("/health")).status_code == 200
            assert (await router.data.post("/v1/chat/completions", json=BODY)).status_code == 200
            await asyncio.sleep(0.8)  # past the window
            assert not router.task.done()
            with pytest.raises(httpx.ConnectError):
                await httpx.AsyncClient().get(str(router.data.base_url))
            release.set()
            assert await anext(lines) == "data: 2\n\n"
        async with asyncio.timeout(5):
            await router.task


@pytest.mark.parametrize("num_signals", [1, 2])
async def test_answers_that_are_cut_say_so(
    num_signals: int, caplog: pytest.LogCaptureFixture
) -> None:
    """At the end of their time, or at a second signal; and nothing of it is an error of the router."""

    async def script(peer: Peer) -> None:
        if b'"stream":true' in peer.request.body:
            await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await peer.gone()
        gone.release()

    gone = asyncio.Semaphore(0)
    drain = {"window_s": 0.0, "finish_s": 0.3 if num_signals == 1 else 60.0}
    async with stub_engine(script=script) as engine, service(engine, drain=drain) as router:
        await router.ready()
        loop = asyncio.get_running_loop()
        whole = loop.create_task(router.data.post("/v1/chat/completions", json=BODY))
        streaming = BODY | {"stream": True}
        async with router.data.stream("POST", "/v1/chat/completions", json=streaming) as stream:
            lines = stream.aiter_text()
            assert await anext(lines) == "data: 1\n\n"
            for _ in range(num_signals):
                stop()
                await asyncio.sleep(0.05)
            last = json.loads((await anext(lines)).removeprefix("data: "))
            assert last["error"]["code"] == "stopping"
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(lines)
        answer = await whole
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "stopping"
        async with asyncio.timeout(5):
            await gone.acquire()
            await gone.acquire()
            await router.task
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_second_signal_cuts_it_short() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await peer.gone()

    drain = {"window_s": 60.0, "finish_s": 60.0}
    async with stub_engine(script=script) as engine, service(engine, drain=drain) as router:
        await router.ready()
        async with router.data.stream("POST", "/v1/chat/completions", json=BODY) as stream:
            assert await anext(stream.aiter_text()) == "data: 1\n\n"
            stop()
            await asyncio.sleep(0.05)
            stop()
            async with asyncio.timeout(5):
                await router.task


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        config = load_config(None, {"port": port, "control_port": 0}, {})
        with pytest.raises(PortInUseError, match=str(port)):
            await serve(config)


class BrokenTicker(Ticker):
    """A part that fails for good."""

    async def run(self) -> None:
        """Fail once everything runs."""
        await asyncio.sleep(0.05)
        raise RuntimeError("the ticker broke")


async def test_a_part_that_fails_ends_the_router_with_an_error() -> None:
    """It does not hang on connections, sockets or events."""
    hostile = {"endpoint_host": "\ud800", "endpoint_port_base": 5557, "topic": ""}
    async with stub_engine(kv_events=hostile) as engine:
        config = load_config(None, {"workers": [engine.url]}, {})
        sockets = {name: listen("127.0.0.1", 0) for name in config.addresses()}
        async with asyncio.timeout(10), wired(config) as router:
            broken = replace(router, ticker=BrokenTicker({}))
            with StopSignal() as stop, pytest.raises(PartFailedError, match="ticker broke"):
                await _run(broken, config, sockets, stop)
        for one in sockets.values():
            one.close()


async def test_a_metrics_port_shows_metrics_to_everybody_and_nothing_else() -> None:
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    closed = {"control_token": "secret", "metrics_port": port}
    async with (
        stub_engine() as engine,
        service(engine, **closed) as router,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as metrics,
    ):
        await router.ready()
        assert (await router.control.get("/metrics")).status_code == 401
        shown = await metrics.get("/metrics")
        assert shown.headers["content-type"].startswith("text/plain; version=")
        assert 'kvroute_connections_open{port="metrics"} 1.0' in shown.text
        assert 'kvroute_workers{state="serving"} 1.0' in shown.text
        head = await metrics.head("/metrics")
        assert (head.status_code, head.content) == (200, b"")
        assert (await metrics.post("/metrics", content=b"x")).status_code == 405
        for path in ("/", "/workers", "/health", "/debug/workers", "/metrics/", "/ui"):
            assert (await metrics.get(path)).status_code == 404


async def test_a_hostile_worker_costs_only_itself() -> None:
    hostile = {"endpoint_host": "\ud800", "endpoint_port_base": 5557, "topic": "\ud800"}
    async with (
        stub_engine(kv_events=hostile) as bad,
        stub_engine() as good,
        service(bad, good) as router,
    ):
        await router.ready()
        bad.pages["/v1/models"] = {"data": [{"id": "\ud800"}, {"id": 10**30}, {"id": "m"}]}
        shown = {one["worker"]: one for one in await router.workers()}
        assert "kv_events.endpoint_host" in str(shown[bad.name]["faults"])
        assert shown[good.name]["faults"] == []
        assert (await router.data.get("/v1/models")).status_code == 200
        assert (await router.data.post("/v1/chat/completions", json=BODY)).status_code == 200
