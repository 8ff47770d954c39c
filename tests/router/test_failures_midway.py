"""Workers that fail within an answer or fall silent: what the client gets, and what stays booked."""

import asyncio
import json

import pytest

from router.upstream import UpstreamTimeouts
from scoring import OutcomeKind
from tests.router.failing_workers import (
    OK,
    close_after_headers,
    close_within_chunks,
    code,
    reset_within_length,
    reset_without_length,
)
from tests.router.front_door import ask, connect, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    Script,
    answering,
    chunk,
    stub_worker,
)

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "script",
    [close_after_headers, reset_within_length, close_within_chunks, reset_without_length],
)
async def test_a_broken_answer_is_broken_for_the_client_and_told_to_the_log(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        stub_worker(script) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url) as door,
    ):
        answer = await ask(door)
        await door.settled()
    assert answer.status == 200
    assert not answer.is_whole
    assert door.brain.kinds == [OutcomeKind.BROKEN_OFF]
    assert door.counters.broken_streams == 1
    (said,) = [one for one in caplog.records if one.name == "router.broken_answers"]
    assert "at worker w0" in said.getMessage()


@pytest.mark.parametrize("is_reset", [True, False])
@pytest.mark.parametrize("sent", [b"data: 1\n\n", b"data: 1\n\ndata: {ha"])
async def test_a_broken_stream_ends_in_an_error_event_and_no_end(
    sent: bytes, is_reset: bool
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(sent))
        await told.wait()
        if is_reset:
            peer.reset()
        else:
            peer.close()

    told = asyncio.Event()
    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", CHAT, body=b'{"model":"m","stream":true}')
            await client.head()
            assert await client.chunk() == sent
            told.set()
            last = await client.chunk()
            with pytest.raises(asyncio.IncompleteReadError):
                await client.chunk()
        await door.settled()
    event = last.removeprefix(b"\n\n")
    assert (last != event) is (not sent.endswith(b"\n\n"))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == "worker_broke_off"
    assert door.brain.kinds == [OutcomeKind.BROKEN_OFF]


async def test_a_stream_without_done_is_whole() -> None:
    data = SSE_HEAD + chunk(b"data: 1\n\n") + LAST_CHUNK
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.body, answer.is_whole) == (b"data: 1\n\n", True)
    assert door.brain.kinds == [OutcomeKind.COMPLETED]


async def test_silence_before_the_answer_is_504_and_not_repeated() -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    timeouts = UpstreamTimeouts(first_byte_s=0.05)
    async with (
        stub_worker(script) as one,
        stub_worker(OK) as two,
        front_door(one.url, two.url, timeouts=timeouts) as door,
    ):
        answer = await ask(door)
        await door.settled()
    assert (answer.status, code(answer)) == (504, "worker_timed_out")
    assert door.brain.kinds == [OutcomeKind.TIMED_OUT]


async def test_a_worker_that_does_not_read_a_large_body_times_out() -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader.set_exception(ConnectionError())
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await hold.wait()
        writer.close()

    hold = asyncio.Event()
    server = await asyncio.start_server(never, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    timeouts = UpstreamTimeouts(first_byte_s=0.1)
    async with front_door(url, timeouts=timeouts) as door:
        answer = await ask(door, "POST", "/raw", body=b"x" * (32 << 20))
        await door.settled()
    hold.set()
    server.close()
    assert answer.status == 504


async def test_silence_within_the_answer_breaks_it_off() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await peer.gone()

    timeouts = UpstreamTimeouts(first_byte_s=30, idle_s=0.05)
    async with stub_worker(script) as worker, front_door(worker.url, timeouts=timeouts) as door:
        answer = await ask(door)
        await door.settled()
    assert not answer.is_whole
    assert b"worker_timed_out" in answer.body
    assert door.brain.kinds == [OutcomeKind.TIMED_OUT]


async def test_a_live_stream_outlives_every_timeout() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for _ in range(8):
            await peer.send(chunk(b"data: 1\n\n"))
            await asyncio.sleep(0.15)
        await peer.send(LAST_CHUNK)

    timeouts = UpstreamTimeouts(first_byte_s=1, idle_s=1)
    async with stub_worker(script) as worker, front_door(worker.url, timeouts=timeouts) as door:
        answer = await ask(door)
    assert answer.is_whole
