"""Whole examinations of engines in this process: what is asked, how long it takes, what comes of it."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kvroute.doctor import (
    Status,
)
from prompt import bundled_model_dir
from protocol import AllBlocksCleared, EventBatch, LiveMessage, encode_batch, live_frames
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.kvroute.command import kvroute
from tests.kvroute.examined import OPTIONS, info, kv_events, look, of, tokenizes
from tests.router.stub_engine import (
    StubEngine,
    StubPublisher,
    stub_engine,
    stub_publisher,
    until,
)
from tests.router.stub_worker import Peer, Script, response, stub_worker


def methods(engine: StubEngine) -> set[tuple[str, str]]:
    return {(one.method, one.target) for one in engine.worker.requests}


async def test_a_sound_worker_is_asked_and_heard_and_generates_nothing() -> None:
    directory = str(bundled_model_dir())
    async with (
        stub_publisher() as publisher,
        stub_engine(
            tokenizer=directory, kv_events=publisher.kv_events, script=tokenizes(), tokenizes=True
        ) as engine,
    ):
        found = await look(engine.url)
    checks = of(found)
    assert checks["parity"].status is Status.OK
    assert checks["tokenizer"].status is Status.OK
    assert checks["ranks"].status is Status.OK
    assert [name for name, one in checks.items() if one.status is Status.FAULT] == ["replay"]
    posts = {target for method, target in methods(engine) if method != "GET"}
    assert posts == {"/tokenize"}
    assert found.num_faults == 1
    assert found.to_json()["faults"] == 1


async def test_other_tokens_are_a_fault() -> None:
    async with stub_engine(
        tokenizer=str(bundled_model_dir()), script=tokenizes(shift=1), tokenizes=True
    ) as engine:
        checks = of(await look(engine.url))
    assert checks["parity"].status is Status.FAULT
    assert "--tokenizer" in checks["parity"].change
    assert checks["events"].status is Status.FAULT
    assert "--kv-events-config" in checks["events"].change


@pytest.mark.parametrize(
    ("chats", "words"),
    [
        (True, "asks the engine for each prompt's tokens (/tokenize)"),
        (
            False,
            "asks the engine for texts' tokens (/tokenize), and chats go where alike ones went",
        ),
    ],
)
async def test_what_a_router_goes_by_without_a_tokenizer(chats: bool, words: str) -> None:
    async def tokenizes_some(peer: Peer) -> None:
        if b'"messages"' in peer.request.body and not chats:
            await peer.send(response(b"{}", status=400))
        else:
            await tokenizes()(peer)

    async with stub_engine(tokenizer="/nowhere", script=tokenizes_some, tokenizes=True) as engine:
        check = of(await look(engine.url))["tokenizer"]
    assert check.status is Status.WARNING
    assert words in check.text
    assert "/nowhere is no directory here" in check.text


async def test_tokenizers_are_found_where_the_router_finds_them(tmp_path: Path) -> None:
    folder = tmp_path / "models--org--name"
    (folder / "snapshots").mkdir(parents=True)
    (folder / "snapshots" / ("a" * 40)).symlink_to(bundled_model_dir())
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    (tmp_path / "tokenizer.json").write_text("{}")
    async with stub_engine(tokenizer="org/name") as engine:
        options = replace(OPTIONS, hub_cache=tmp_path)
        in_hub = of(await look(engine.url, options=options))["tokenizer"]
        options = replace(options, tokenizers={"m": tmp_path})
        instead = of(await look(engine.url, options=options))["tokenizer"]
    assert (in_hub.status, in_hub.text.endswith("(hub)")) == (Status.OK, True)
    assert (instead.status, "(hub), in place of another" in instead.text) == (Status.WARNING, True)


async def test_without_a_tokenizer_or_a_route_nothing_is_compared() -> None:
    async def nothing(peer: Peer) -> None:
        await peer.send(response(b"{}", status=404))

    async with stub_engine(tokenizer="/nowhere", script=nothing) as engine:
        nowhere = of(await look(engine.url))
        configured = replace(OPTIONS, tokenizers={"m": bundled_model_dir()})
        no_route = of(await look(engine.url, options=configured))
    assert nowhere["tokenizer"].status is Status.WARNING
    assert "no token ids go where alike ones went" in nowhere["tokenizer"].text
    assert nowhere["parity"].status is Status.UNCHECKED
    assert no_route["tokenizer"].status is Status.OK
    assert no_route["parity"].status is Status.UNCHECKED


async def test_closed_event_ports_are_named_with_their_reason() -> None:
    events = kv_events(9, replay_endpoint_port_base=10)
    async with stub_engine(kv_events=events) as engine:
        checks = of(await look(engine.url))
    assert checks["ranks"].status is Status.FAULT
    assert "tcp://127.0.0.1:9: connection refused" in checks["ranks"].text


async def test_a_port_that_is_no_event_socket_is_told_apart() -> None:
    async with (
        stub_engine() as other,
        stub_engine(kv_events=kv_events(other.worker.port)) as engine,
    ):
        checks = of(await look(engine.url))
    assert "no event socket" in checks["ranks"].text


async def test_only_the_ranks_that_cannot_be_reached_are_accused() -> None:
    async with (
        stub_publisher() as publisher,
        stub_engine(kv_events={**publisher.kv_events, "dp_size": 2}) as engine,
    ):
        engine.pages["/server_info"] = {**info(engine), "dp_size": 2}
        checks = of(await look(engine.url))
    assert checks["ranks"].status is Status.FAULT
    assert checks["ranks"].text.startswith("rank 1: ")


async def test_a_hanging_worker_is_bounded_and_delays_no_other() -> None:
    async def hang(peer: Peer) -> None:
        await peer.gone()

    options = replace(OPTIONS, visit=replace(OPTIONS.visit, bound_s=1.5, page_s=1.0))
    async with stub_worker(hang) as frozen, stub_engine() as engine:
        started = time.monotonic()
        found = await look(frozen.url, engine.url, options=options)
        took_s = time.monotonic() - started
    assert of(found, 0)["reachable"].status is Status.FAULT
    assert "no whole answer within 1 s" in of(found, 0)["reachable"].text
    assert of(found, 1)["reachable"].status is Status.OK
    assert took_s < 8.0  # each of them alone may take 2.5 s


async def test_one_page_that_hangs_costs_only_itself() -> None:
    async def serve(peer: Peer) -> None:
        if peer.request.target == "/metrics":
            await peer.gone()
        page = {"/health": "{}", "/v1/models": '{"data": [{"id": "m"}]}'}.get(peer.request.target)
        await peer.send(response((page or "{}").encode(), status=200 if page else 404))

    options = replace(OPTIONS, visit=replace(OPTIONS.visit, page_s=0.5))
    async with stub_worker(serve) as worker:
        found = await look(worker.url, options=options)
    texts = [one.text for one in found.workers[0].checks]
    assert "serves m" in texts
    assert any(text.startswith("/metrics: no whole answer") for text in texts)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (401, (), "--worker-token"),
        (404, (), "engine that serves"),
        (200, (("x-kvroute-worker", "w0"),), "control port"),
    ],
)
async def test_what_is_no_worker(
    status: int, headers: tuple[tuple[str, str], ...], words: str
) -> None:
    async def serve(peer: Peer) -> None:
        is_health = peer.request.target == "/health"
        await peer.send(response(b"{}", status=200 if is_health else status, headers=headers))

    async with stub_worker(serve) as worker:
        check = of(await look(worker.url))["reachable"]
    assert check.status is Status.FAULT
    assert words in check.change


async def test_nobody_there() -> None:
    check = of(await look("http://127.0.0.1:9"))["reachable"]
    assert check.status is Status.FAULT
    assert "connection refused" in check.text


async def test_a_probe_of_several_ranks_goes_to_one_of_them() -> None:
    options = replace(OPTIONS, visit=replace(OPTIONS.visit, nonce="n"))
    async with stub_engine() as engine:
        engine.pages["/server_info"] = {**info(engine), "dp_size": 2}
        await look(engine.url, options=options)
    sent = [one for one in engine.worker.requests if one.target == "/v1/chat/completions"]
    assert [one.values("x-data-parallel-rank") for one in sent] == [["0"], ["0"]]


async def test_workers_side_by_side() -> None:
    async with (
        stub_publisher() as publisher,
        stub_engine(kv_events=publisher.kv_events) as one,
        stub_engine(kv_events=publisher.kv_events) as other,
        stub_engine(model="n") as third,
    ):
        other.pages["/server_info"] = {**info(other), "version": "0.5.20"}
        found = await look(one.url, other.url, third.url)
    texts = [f"{check.name}: {check.text}" for check in found.fleet]
    assert any(
        text.startswith("publishers:") and "one is heard in the others'" in text for text in texts
    )
    assert "model: models by number of workers: m (2), n (1)" in texts
    assert any("several versions: sglang 0.5.20, sglang 0.5.23" in text for text in texts)


def answers_chats(publisher: StubPublisher, cached: object) -> Script:
    async def script(peer: Peer) -> None:
        if peer.request.target != "/v1/chat/completions":
            await peer.send(response(b"{}", status=404))
            return
        await until(publisher.is_subscribed)
        batch = EventBatch(time.time(), [AllBlocksCleared()], 0)
        message = LiveMessage(b"", publisher.seq, encode_batch(batch))
        publisher.socket.send_multipart(live_frames(message))
        publisher.seq += 1
        details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
        usage = {"prompt_tokens": 8, "completion_tokens": 1, **details}
        await peer.send(response(json.dumps({"choices": [], "usage": usage}).encode()))

    return script


@pytest.mark.parametrize(
    ("cached", "status"), [(8, Status.OK), (0, Status.WARNING), (None, Status.WARNING)]
)
async def test_a_probe_makes_an_engine_speak(cached: object, status: Status) -> None:
    options = replace(OPTIONS, visit=replace(OPTIONS.visit, nonce="n", rest_s=20.0))
    async with stub_publisher() as publisher:
        script = answers_chats(publisher, cached)
        async with stub_engine(kv_events=publisher.kv_events, script=script) as engine:
            checks = of(await look(engine.url, options=options))
    assert checks["probe"].status is Status.OK
    assert checks["clock"].status is Status.OK
    assert checks["cache_report"].status is status
    assert engine.num_served == 2


async def test_a_probe_that_fails_or_is_not_heard_of() -> None:
    options = replace(OPTIONS, visit=replace(OPTIONS.visit, nonce="n"))
    async with stub_publisher() as publisher:
        async with stub_engine(kv_events=publisher.kv_events, script=tokenizes()) as engine:
            failed = of(await look(engine.url, options=options))
        async with stub_engine(kv_events=publisher.kv_events) as engine:
            mute = of(await look(engine.url, options=options))
    assert failed["probe"].status is Status.FAULT
    assert "500" in failed["probe"].text
    assert mute["probe"].status is Status.FAULT
    assert "--kv-events-config" in mute["probe"].change


async def test_the_command_prints_tables_and_ends_with_1_at_a_fault() -> None:
    async with stub_engine() as engine:
        ended = await kvroute("doctor", engine.url.removeprefix("http://"), "--json", "-")
    assert ended.code == 1
    shown = json.loads(ended.stdout)
    (worker,) = shown["workers"]
    events = next(one for one in worker["checks"] if one["check"] == "events")
    assert (events["status"], "--kv-events-config" in events["change"]) == ("fault", True)
    assert "1 worker: " in ended.stderr
    assert "→ --kv-events-config" in ended.stderr


async def test_the_command_ends_with_0_where_there_is_no_fault() -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    try:
        live, replay = publisher.ports
        events = kv_events(live, replay_endpoint_port_base=replay)
        async with stub_engine(kv_events=events) as engine:
            ended = await kvroute("doctor", engine.url, "--listen", "0")
    finally:
        publisher.close()
    assert ended.code == 0, ended.stdout
    assert "1 worker: 0 faults" in ended.stdout
