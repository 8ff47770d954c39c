"""Heads of requests, as workers get them."""

import pytest

from tests.router.stub_worker import answering, response, stub_worker
from tests.router.upstream_client import body_of, upstream

OK = answering(response(b"hello"))


async def test_a_request_goes_out_as_it_was_given() -> None:
    headers = ((b"X-b", b"1"), (b"x-A", b"caf\xe9"), (b"X-b", b"2"))
    async with stub_worker(OK) as worker, upstream() as client:
        url = f"{worker.url}/a%2Fb//c/../d?q=%20&q"
        assert await body_of(await client.send("PUT", url, headers, b"\x00\xff")) == b"hello"
    (request,) = worker.requests
    assert (request.method, request.target) == ("PUT", "/a%2Fb//c/../d?q=%20&q")
    assert request.body == b"\x00\xff"
    assert request.headers == [
        ("Host", f"127.0.0.1:{worker.port}"),
        ("X-b", "1"),
        ("x-A", "caf\xe9"),
        ("X-b", "2"),
        ("Content-Length", "2"),
    ]


@pytest.mark.parametrize(("method", "lengths"), [("GET", []), ("POST", ["0"]), ("DELETE", ["0"])])
async def test_the_length_of_no_body(method: str, lengths: list[str]) -> None:
    async with stub_worker(OK) as worker, upstream() as client:
        await client.send(method, f"{worker.url}/", (), b"")
    assert worker.requests[0].values("content-length") == lengths


@pytest.mark.parametrize(
    ("target", "field"),
    [("/ HTTP/1.1\r\nX: y", (b"a", b"b")), ("/", (b"a", b"b\r\nc: d")), ("/", (b"a\n", b"b")), ("/ x", (b"a", b"b"))],
)  # fmt: skip
async def test_nothing_can_be_smuggled_into_a_head(target: str, field: tuple[bytes, bytes]) -> None:
    async with stub_worker(OK) as worker, upstream() as client:
        with pytest.raises(ValueError, match=r"line break|space"):
            await client.send("GET", worker.url + target, (field,), b"")
    assert not worker.requests
