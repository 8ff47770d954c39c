"""Bytes that are almost requests, read by the data port and by another parser: a worker sees what the other one sees, or less.

The other one is h11, which takes some that are refused here (folded fields, bare line feeds, equal lengths) and no others.
"""

import asyncio
from contextlib import AsyncExitStack

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from router.connections import ConnectionLimits
from tests.router.front_door import connect, front_door
from tests.router.strict_worker import StrictWorker, strict_worker

Seen = list[tuple[str, bytes]]

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: r\r\n\r\n"
LINES = st.sampled_from(
    [b"PUT /a HTTP/1.1", b"POST /b HTTP/1.1", b"GET /c HTTP/1.1", b"PUT /d HTTP/1.0", b"PUT /e HTTP/1.1 "]
)  # fmt: skip
FIELDS = st.sampled_from(
    [
        b"Host: r", b"Host: r", b"Host: r", b"host:r", b"X: y", b"X:", b"X: a\tb", b"X: \xe9",
        b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: 5", b"content-length:5", b"Content-Length: 34",
        b"Content-Length: 5, 5", b"Content-Length: +5", b"Content-Length : 5", b"Content-Length: 5 ", b"Content-Length: 05",
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", b"transfer-encoding: CHUNKED",
        b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: chunked\r",
        b" folded", b"X: a\nContent-Length: 5", b"X: a\rContent-Length: 5", b"X\x00: y", b"Connection: close", b"Connection: keep-alive",
    ]
)  # fmt: skip
ENDS = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\n\r\n"])
BODIES = st.sampled_from(
    [
        b"", b"", b"hello", HIDDEN, b"5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n", b"0\r\n\r\n" + HIDDEN, b"22\r\n" + HIDDEN + b"\r\n0\r\n\r\n",
        b"5;a=b\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"05\r\nhello\r\n0\r\nX: y\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
        b"6\r\nhello\r\n0\r\n\r\n", b"4\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\nhello",
    ]
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One that is almost right."""
    lines = [draw(LINES), *draw(st.lists(FIELDS, max_size=4))]
    if draw(st.integers(0, 9)):
        lines.insert(1, b"Host: r")
    head = b"".join(line + draw(ENDS) for line in lines)
    return head + draw(ENDS) + draw(BODIES)


STREAMS = st.lists(st.one_of(requests(), st.just(HIDDEN)), min_size=1, max_size=4).map(b"".join)


def read_by_h11(data: bytes) -> tuple[Seen, bool]:
    """Whole requests, and whether it met one that it refuses."""
    connection, found = h11.Connection(h11.SERVER), Seen()
    connection.receive_data(data)
    target, body = "", b""
    try:
        while True:
            event = connection.next_event()
            match event:
                case h11.Request():
                    target, body = event.target.decode("latin-1"), b""
                case h11.Data():
                    body += bytes(event.data)
                case h11.EndOfMessage():
                    found.append((target, body))
                    connection.send(
                        h11.Response(status_code=200, headers=[("content-length", "0")])
                    )
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is h11.MUST_CLOSE:
                        return found, False
                    connection.start_next_cycle()
                case _:
                    return found, False
    except h11.RemoteProtocolError:
        return found, True


async def read_here(port: int, worker: StrictWorker, data: bytes, num_expected: int) -> Seen:
    """Whole requests, as a worker gets them: until all are there that may come, or the connection ends."""
    worker.requests.clear()
    async with connect(port) as client:
        client.writer.write(data)
        reading = asyncio.ensure_future(client.reader.read())
        for _ in range(60):
            await asyncio.sleep(0)
        if len(worker.requests) < num_expected:  # it may wait for more bytes than there are
            await asyncio.wait([reading], timeout=0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return [(target, body) for _, target, body in worker.requests]


def test_a_worker_sees_no_more_than_another_parser_does_and_nothing_else() -> None:
    limits = ConnectionLimits(keep_alive_s=5)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def open_door() -> tuple[int, StrictWorker]:
            worker = await stack.enter_async_context(strict_worker())
            door = await stack.enter_async_context(front_door(worker.url, connections=limits))
            return door.port, worker

        port, worker = runner.run(open_door())

        @given(STREAMS)
        @settings(max_examples=300, deadline=None, derandomize=True)
        def check(data: bytes) -> None:
            expected, is_refused = read_by_h11(data)
            seen = runner.run(read_here(port, worker, data, len(expected)))
            assert seen == expected[: len(seen)], (expected, is_refused)
            assert worker.faults == []

        check()
        runner.run(stack.aclose())
