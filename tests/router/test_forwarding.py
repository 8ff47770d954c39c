"""What a worker gets of a request: bytes, headers, the request id, the rank."""

import pytest

from tests.router.front_door import ask, connect, front_door
from tests.router.stub_worker import Peer, answering, response, stub_worker

CHAT = "/v1/chat/completions"


async def echo(peer: Peer) -> None:
    await peer.send(response(peer.request.body))


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        (
            "POST",
            CHAT,
            b'{ "model":"m", "n": 1.0, "big": 9007199254740993, "x": "\xc3\xa9\\u00e9" }',
        ),
        ("POST", "/generate", b'{"text":"hi"}'),
        ("POST", "/v1/responses", b'{"model":"m"}'),
        ("POST", "/v1/messages", b'{"model":"m"}'),
        ("POST", "/unknown/path?x=1&x=2&y=%20+", b"\x00\xff not json"),
        ("PUT", "/a%2Fb//c/../d?q", b"x"),
        ("DELETE", "/v1/responses/r1", None),
        ("PATCH", "/x", b""),
        ("OPTIONS", "/v1/models", None),
        ("GET", "/x?a=b?c&d=%C3%A9", None),
        ("GET", CHAT, None),
        ("POST", "/v1/embeddings", b'{"model":"m"}'),
        ("POST", "/update_weights_from_disk", b'{"model":"another"}'),
        ("POST", "/v1/audio/transcriptions", b"--b\r\n\r\n--b--"),
    ],
)
async def test_method_target_and_body_go_on_unchanged(
    method: str, target: str, body: bytes | None
) -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        answer = await ask(door, method, target, [("content-type", "application/json")], body)
        await door.settled()
    (request,) = worker.requests
    assert (request.method, request.target) == (method, target.removesuffix("?"))
    assert request.body == (body or b"")
    assert (answer.status, answer.body) == (200, body or b"")


async def test_headers_keep_order_and_repeats_and_lose_the_hops_own() -> None:
    sent = [
        ("X-B", "1"),
        ("X-A", "é".encode().decode("latin-1")),
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "gone"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "secret"),
        ("Authorization", "Bearer client"),
        ("traceparent", "00-1-2-01"),
        ("X-B", "2"),
    ]
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        await ask(door, headers=sent)
    got = [(name.lower(), value) for name, value in worker.requests[0].headers]
    own = ("host", "content-length", "x-request-id", "via")
    assert [field for field in got if field[0] not in own] == [
        ("x-b", "1"),
        ("x-a", "é".encode().decode("latin-1")),
        ("authorization", "Bearer client"),
        ("traceparent", "00-1-2-01"),
        ("x-b", "2"),
    ]
    assert worker.requests[0].values("host") == [f"127.0.0.1:{worker.port}"]
    assert worker.requests[0].values("content-length") == ["27"]


async def test_bytes_beyond_ascii_in_a_field_go_on_as_they_are() -> None:
    """RFC 9110 §5.5 lets them stand in a value, in whatever coding."""
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", CHAT, [("X-A", "caf\xe9")], b'{"model":"m"}')
            assert (await client.answer()).status == 200
        await door.settled()
    assert worker.requests[0].values("x-a") == ["caf\xe9"]


async def test_no_header_is_invented_for_the_worker() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        await ask(door, "GET", "/x", body=None)
    assert [name.lower() for name, _ in worker.requests[0].headers] == [
        "host",
        "x-request-id",
        "via",
    ]


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        ("abc-123", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a" * 20_000, False),
        ("with space", False),
        ("é".encode().decode("latin-1"), False),
        (None, False),
    ],
)
async def test_one_request_id_everywhere(sent: str | None, is_kept: bool) -> None:
    headers = [] if sent is None else [("X-Request-Id", sent)]
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        answer = await ask(door, headers=headers)
    (request_id,) = answer.values("x-request-id")
    assert worker.requests[0].values("x-request-id") == [request_id]
    assert door.brain.requests[0].request_id == request_id
    assert (request_id == sent) is is_kept
    assert 0 < len(request_id) <= 128


async def test_the_workers_echo_of_the_request_id_is_not_doubled() -> None:
    data = response(b"{}", headers=(("X-Request-Id", "theirs"),))
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        answer = await ask(door, headers=[("x-request-id", "ours")])
    assert answer.values("x-request-id") == ["ours"]


@pytest.mark.parametrize("dp_ranks", [range(2), range(4, 6)])
async def test_the_rank_is_named_and_pinned(dp_ranks: range) -> None:
    """An engine counts its ranks from its first one, also where that is a later one of its group."""
    async with stub_worker(echo) as worker, front_door(worker.url, dp_ranks=dp_ranks) as door:
        first = await ask(door, headers=[("x-data-parallel-rank", "7")])
    assert first.values("x-kvroute-worker") == ["w0"]
    assert first.values("x-kvroute-dp-rank") == [str(dp_ranks[0])]
    assert worker.requests[0].values("x-data-parallel-rank") == ["0"]


async def test_a_single_rank_is_not_pinned() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        await ask(door)
    assert worker.requests[0].values("x-data-parallel-rank") == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"a\x01b", 400), (b"a\x00", 400), (b"a\x7f", 400), (b"x" * (1 << 20), 431)],
)
async def test_ids_that_no_field_can_hold_end_the_request(sent: bytes, status: int) -> None:
    async with (
        stub_worker(echo) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        head = b"GET /x HTTP/1.1\r\nHost: r\r\nX-Request-Id: %s\r\n\r\n"
        client.writer.write(head % sent)
        assert (await client.answer()).status == status
    assert not worker.requests
