"""``kvroute tap`` as a child process beside a publisher in this one."""

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import zmq

from kvroute.tap import worker_entry, worker_sources
from loadgen import free_ports
from protocol import AllBlocksCleared, EventBatch, LiveMessage, encode_batch, live_frames
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.kvroute.command import kvroute
from tests.kvroute.test_cli import invoke
from tests.recordings import json_lines
from tests.router.stub_engine import stub_engine


@contextmanager
def publisher(changes: Changes) -> Iterator[LoopbackPublisher]:
    one = LoopbackPublisher(changes)
    try:
        yield one
    finally:
        one.close()


@asynccontextmanager
async def tapping(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kvroute", "tap", *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(30.0):
            yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_buffered_then_live_events_are_recorded_and_counted(tmp_path: Path) -> None:
    changes, path = Changes(), tmp_path / "mine.jsonl"
    with publisher(changes) as one:
        one.publish(1)
        one.publish(2)
        live, replay = one.ports
        arguments = [f"tcp://127.0.0.1:{live}", "--replay", f"tcp://127.0.0.1:{replay}"]
        async with tapping(*arguments, "--count", "3", "--json", "-", "--record", str(path)) as tap:
            await changes.until(lambda: one.num_subscribers == 1 and one.requests == [0])
            one.publish(3)
            stdout, stderr = await tap.communicate()
    assert tap.returncode == 0, stderr
    shown = [json.loads(line) for line in stdout.splitlines()]
    events = [one for one in shown if one["kind"] == "event"]
    assert [one["hashes"] for one in events] == [[f"{block:016x}"] for block in (1, 2, 3)]
    assert [one["is_replayed"] for one in events] == [True, True, False]
    assert shown[-1]["kind"] == "summary"
    assert shown[-1]["events"] == 3
    assert [line["seq"] for line in json_lines(path)] == [0, 1, 2]
    expected = json.loads((tmp_path / "mine.expected.json").read_text())
    assert expected["blocks"][0]["hashes"] == [1, 2, 3]
    assert b"3 events in 3 batches of 1 rank" in stderr


async def test_ctrl_c_tells_the_counts_and_ends_with_130() -> None:
    changes = Changes()
    with publisher(changes) as one:
        async with tapping(f"tcp://127.0.0.1:{one.ports[0]}") as tap:
            await changes.until(lambda: one.num_subscribers == 1)
            one.publish(1)
            assert tap.stdout is not None
            shown = [await tap.stdout.readline() for _ in range(3)]
            tap.send_signal(signal.SIGINT)
            stdout, stderr = await tap.communicate()
    assert b"stored" in shown[-1]
    assert tap.returncode == 130
    assert b"1 event in 1 batch" in stdout
    assert stderr == b""


async def test_a_reader_that_goes_away_ends_it_though_nothing_is_published() -> None:
    changes = Changes()
    with publisher(changes) as one:
        command = f"{sys.executable} -m kvroute tap tcp://127.0.0.1:{one.ports[0]} | head -1; echo ${{PIPESTATUS[0]}}"
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        async with asyncio.timeout(30.0):
            stdout, stderr = await shell.communicate()
    assert stdout.splitlines()[-1] == b"0"
    assert stderr == b""


async def test_nobody_there_ends_with_1() -> None:
    ended = await kvroute("tap", "tcp://127.0.0.1:1", "--for", "0.5")
    assert ended.code == 1
    assert "no connection to tcp://127.0.0.1:1" in ended.stderr


async def test_an_engine_that_connects_is_heard_at_a_bound_endpoint() -> None:
    (port,) = free_ports(1)
    async with tapping(f"tcp://127.0.0.1:{port}", "--bind", "--count", "1", "--json", "-") as tap:
        with zmq.Context() as context, context.socket(zmq.XPUB) as engine:
            engine.linger = 0
            engine.connect(f"tcp://127.0.0.1:{port}")
            assert await asyncio.to_thread(engine.poll, 20_000)
            batch = EventBatch(1.0, [AllBlocksCleared()], 0)
            engine.send_multipart(live_frames(LiveMessage(b"", 0, encode_batch(batch))))
            stdout, stderr = await tap.communicate()
    assert tap.returncode == 0, stderr
    assert json.loads(stdout.splitlines()[1])["event"] == "cleared"


EVENTS = {
    "publisher": "zmq",
    "endpoint_host": "*",
    "endpoint_port_base": 7000,
    "replay_endpoint_port_base": 7100,
    "topic": "kv",
    "block_size": 4,
    "dp_size": 2,
}


async def sources(url: str, replay: str | None = None, topic: str | None = None) -> list[str]:
    found = await worker_sources(worker_entry(url), replay=replay, topic=topic, token=None)
    return [f"{one.endpoint} {one.replay_endpoint} {one.topic}" for one in found]


async def test_a_worker_names_its_endpoints() -> None:
    async with stub_engine(kv_events=EVENTS) as engine:
        at = "tcp://127.0.0.1:"
        assert await sources(engine.url) == [f"{at}7000 None kv", f"{at}7001 None kv"]
        assert await sources(engine.url, "engine", "") == [
            f"{at}7000 {at}7100 ",
            f"{at}7001 {at}7101 ",
        ]
        assert await sources(engine.url, "tcp://h:9000") == [
            f"{at}7000 tcp://h:9000 kv",
            f"{at}7001 tcp://h:9001 kv",
        ]


async def test_a_worker_without_events_is_told_what_to_change() -> None:
    async with stub_engine() as engine:
        silent = await kvroute("tap", engine.url)
        engine.pages["/server_info"] = {
            "served_model_name": "m",
            "kv_events": {k: v for k, v in EVENTS.items() if k != "replay_endpoint_port_base"},
        }
        no_replay = await kvroute("tap", engine.url, "--replay", "engine")
    assert silent.code == no_replay.code == 1
    assert "--kv-events-config" in silent.stderr
    assert "replay_endpoint" in no_replay.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("127.0.0.1:5557",), "not tcp://host:port"),
        (("tcp://*:5557",), "name its host"),
        (("tcp://h:0",), "not tcp://host:port"),
        (("http://",), "not an http URL"),
        (("tcp://h:1", "--replay", "engine"), "needs the worker's URL"),
        (("http://127.0.0.1:1", "--replay", "x"), "--replay"),
        (("http://127.0.0.1:1", "--bind"), "--bind"),
        (("tcp://h:1", "--for", "0"), "--for"),
        (("tcp://h:1", "--count", "0"), "--count"),
        (("tcp://h:1", "--record", "/"), "exists"),
        (("tcp://h:1", "--record", "/nowhere/x.jsonl"), "no directory"),
    ],
)
def test_mistakes_end_with_2(arguments: tuple[str, ...], words: str) -> None:
    code, output = invoke("tap", *arguments)
    assert code == 2
    assert words in output
