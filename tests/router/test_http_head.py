"""Heads of requests on the wire: what is no request for a path here, however it is cut."""

import asyncio

import pytest

from router.connections import ConnectionEnd
from tests.router.front_door import connect, front_door
from tests.router.stub_worker import stub_worker
from tests.router.wire import GET, OK, code, echo_target, refused

LINES = [
    b"OPTIONS * HTTP/1.1",
    b"CONNECT evil.com:443 HTTP/1.1",
    b"CONNECT /a HTTP/1.1",
    b"GET @evil.com/ HTTP/1.1",
    b"GET evil.com/ HTTP/1.1",
    b"GET /\xe9 HTTP/1.1",
    b"GET /a?\xff HTTP/1.1",
    b"GET /x HTTP/2.0",
    b"GET /x HTTP/0.9",
    b"GET /x  HTTP/1.1",
    b"GET /x",
    b"FOO /x HTTP/1.1",
    b"get /x HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /x RTSP/1.0",
    b"POST /x RTSP/1.1",
    b"OPTIONS /x RTSP/1.0",
    b"SETUP /x RTSP/1.0",
    b"SOURCE /x ICE/1.0",
    b"SOURCE /x ICE/1.0\r\nConnection: upgrade\r\nUpgrade: x",
]
HOSTS = {
    "none": b"",
    "two": b"Host: a\r\nHost: b\r\n",
    "the same twice": b"Host: a\r\nHOST: a\r\n",
    "a list": b"Host: a, b\r\n",
    "a path": b"Host: a/b\r\n",
    "a space": b"Host: a b\r\n",
    "a user": b"Host: u@a\r\n",
    "beyond ASCII": b"Host: \xe9\r\n",
    "none, and an upgrade": b"Connection: upgrade\r\nUpgrade: h2c\r\n",
}


@pytest.mark.parametrize("line", LINES)
async def test_what_is_no_request_for_a_path_is_refused(line: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        answer = await refused(door, line + b"\r\nHost: r\r\n\r\n")
    assert (answer.status, code(answer)) == (400, "malformed_request")
    assert not worker.requests


@pytest.mark.parametrize("fields", HOSTS.values(), ids=HOSTS.keys())
async def test_a_request_names_one_host(fields: bytes) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        answer = await refused(door, b"GET /x HTTP/1.1\r\n" + fields + b"\r\n")
        assert door.guard.ended == {ConnectionEnd.MALFORMED: 1}
    assert answer.status == 400
    assert not worker.requests


@pytest.mark.parametrize("line", [b"POST /x RTSP/1.1", b"GET /y  HTTP/1.1", b"GET /x HTTP/2.0"])
async def test_nor_is_it_one_byte_by_byte_or_behind_another(line: bytes) -> None:
    data = line + b"\r\nHost: r\r\n\r\n"
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for at in range(len(data)):
                client.writer.write(data[at : at + 1])
                await asyncio.sleep(0)
            assert (await client.answer()).status == 400
        async with connect(door.port) as client:
            client.writer.write(GET.replace(b"/x", b"/other") + data)
            assert (await client.answer()).status == 200
            assert await client.reader.read() == b""
    assert [request.target for request in worker.requests] == ["/other"]


@pytest.mark.parametrize("size", [1, 2, 7, 33, 1000])
async def test_requests_of_any_cut_pass(size: int) -> None:
    put = b"PUT /%d HTTP/1.1\r\nHost: r\r\nContent-Length: 15\r\n\r\n/%d RTSP/1.0\r\n\r\n"
    data = b"\r\n\r\n" + b"".join(put % (number, number) for number in range(3))
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        for at in range(0, len(data), size):
            client.writer.write(data[at : at + size])
            await asyncio.sleep(0)
        for number in range(3):
            answer = await client.answer()
            assert answer.body == b"/%d /%d RTSP/1.0\r\n\r\n" % (number, number)


async def test_a_client_of_http_1_0_names_no_host_sends_no_chunks_and_is_told_of_no_100() -> None:
    async with stub_worker(echo_target) as worker, front_door(worker.url) as door:
        data = b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        assert (await refused(door, data)).status == 400
        data = b"POST /x HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"
        assert (await refused(door, data)).status == 400
        data = b"POST /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        async with connect(door.port) as client:
            client.writer.write(data)
            await asyncio.sleep(0.05)
            client.writer.write(b"ok")
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, b"/x ok")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://r/a?b=1", "/a?b=1"),
        (b"/a?b#c", "/a?b"),
        (b"/a?", "/a?"),
        (b"/a/?", "/a/?"),
        (b"/v1/chat/completions/?", "/v1/chat/completions?"),
        (b"/%2e%2E/a?%zz&&=", "/%2e%2E/a?%zz&&="),
    ],
)
async def test_path_and_query_go_on_byte_for_byte(target: bytes, path: str) -> None:
    async with (
        stub_worker(echo_target) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        client.writer.write(b"POST %s HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n{}" % target)
        assert (await client.answer()).body.decode() == path + " {}"
