"""The whole router with its access log and traces: lines and spans of what it served, and metrics of both."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from router.access_log_config import AccessLogConfig, LogFormat
from router.config_sources import ConfigError
from router.hang_up import HangUp
from router.tracing_config import TracingConfig
from router.watching import open_watching
from tests.router.stub_engine import answer_chat, stub_engine, until
from tests.router.stub_worker import Peer, answering, response, stub_worker
from tests.router.test_service import BODY, Service, service

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_a_router_logs_what_it_serves_and_traces_it(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = {"format": "json", "file": str(path)}
    async with stub_worker(answering(response(b"", headers=()))) as collector:
        tracing = {"enabled": True, "endpoint": collector.url}
        async with (
            stub_engine() as engine,
            service(engine, access_log=log, tracing=tracing) as router,
        ):
            await router.ready()
            sent = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01", "x-request-id": "abc"}
            answer = await router.data.post(
                "/v1/chat/completions?api_key=secret", json=BODY, headers=sent
            )
            assert answer.status_code == 200
            await until(lambda: len(lines(path)) == 1)
            os.kill(os.getpid(), signal.SIGHUP)
            assert (await router.data.post("/v1/chat/completions", content=b"{")).status_code == 400
            metrics = (await router.control.get("/metrics")).text
            logged = (await router.control.get("/debug/decisions/abc")).json()
    assert collector.requests[0].target == "/v1/traces"
    first, second = lines(path)
    assert first["request_id"] == answer.headers["x-request-id"] == logged["request_id"] == "abc"
    assert first["trace_id"] == TRACE_ID
    assert (first["path"], first["worker"]) == ("/v1/chat/completions", engine.name)
    assert (first["outcome"], first["reason"]) == ("completed", "only_candidate")
    assert (second["outcome"], second["error"]) == ("refused", "malformed_request")
    written = path.read_text()
    assert "secret" not in written
    assert "how are you" not in written
    assert 'kvroute_access_log_lines_total{fate="written"} ' in metrics
    assert 'kvroute_trace_spans_total{fate="made"} ' in metrics


async def test_nothing_watches_by_default() -> None:
    async with open_watching(AccessLogConfig(), TracingConfig(), HangUp()) as nobody:
        assert nobody.observers == []
        assert [list(family.samples) for family in nobody.metrics()] == [[], []]


async def test_traces_come_before_the_log_which_tells_their_ids(tmp_path: Path) -> None:
    chosen = AccessLogConfig(format=LogFormat.TEXT, file=tmp_path / "log")
    async with open_watching(chosen, TracingConfig(enabled=True), HangUp()) as both:
        assert list(both.observers) == [both.tracing, both.access_log]


async def test_a_router_that_cannot_log_does_not_start(tmp_path: Path) -> None:
    log = {"format": "json", "file": str(tmp_path / "none" / "x.log")}
    with pytest.raises(ConfigError, match=r"access_log\.file"):
        async with service(access_log=log) as router:
            await router.task


async def test_a_request_that_waited_says_for_how_long(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = {"format": "json", "file": str(path)}
    goes_on = asyncio.Event()

    async def hold(peer: Peer) -> None:
        await goes_on.wait()
        await answer_chat(peer)

    async with (
        stub_engine(script=hold) as engine,
        service(engine, access_log=log, queue={"max_in_flight": 1}) as router,
    ):
        await router.ready()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(router)) for _ in range(2)]
            while "kvroute_queue_depth 1.0" not in (await router.control.get("/metrics")).text:
                assert not asked[0].done()
            goes_on.set()
        await until(lambda: len(lines(path)) == 2)
    assert [one.result() for one in asked] == [200, 200]
    told = [(ms(one, "queue_ms"), ms(one, "ttft_ms"), ms(one, "total_ms")) for one in lines(path)]
    assert all(queue <= ttft <= total for queue, ttft, total in told)
    assert [queue > 0 for queue, _, _ in sorted(told)] == [False, True]


async def ask(router: Service) -> int:
    return (await router.data.post("/v1/chat/completions", json=BODY)).status_code


def ms(line: dict[str, object], name: str) -> float:
    value = line[name]
    assert isinstance(value, float)
    return value
