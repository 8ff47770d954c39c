"""Answers of every framing and coding, cut anywhere, over connections that are kept."""

import asyncio
import gzip
import json
import zlib
from random import Random

import httpx
import pytest

from router.upstream import Upstream
from scoring import OutcomeKind
from tests.router.front_door import WireClient, ask, connect, front_door
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk, response, stub_worker

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m","stream":true}'
USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 32},
}
STREAM = "".join(
    (
        ": keep-alive\n\n",
        'data: {"choices":[{"delta":{"content":"안녕하세요 🙂🇰🇷 é"}}]}\r\n\r\n',
        ": comment in the midst\r\n",
        "event: x\ndata: {\ndata:  two lines\n\n",
        'data: {"choices":[{"delta":{"content":"' + "긴 글 " * 9_000 + '"}}]}\n\n',
        "\n\n: \n\n",
        f'data: {{"choices":[],"usage":{json.dumps(USAGE)}}}\n\n',
        "data: [DONE]\n\n",
    )
).encode()


def cuts(seed: int) -> list[bytes]:
    """The stream in pieces: single bytes at both ends, of any size between them."""
    rng, pieces, at = Random(seed), [], 0
    while at < len(STREAM):
        is_end = at < 600 or at > len(STREAM) - 600
        size = 1 if is_end else rng.choice((1, 2, 3, 700, 5_000, 70_000))
        size = min(size, max(1, len(STREAM) - 600 - at))
        pieces.append(STREAM[at : at + size])
        at += size
    return pieces


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("seed", range(3))
async def test_characters_and_events_may_be_cut_anywhere(seed: int, framing: str) -> None:
    heads = {
        "chunked": SSE_HEAD,
        "length": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        % len(STREAM),
        "close": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
    }

    async def script(peer: Peer) -> None:
        await peer.send(heads[framing])
        for piece in cuts(seed):
            await peer.send(chunk(piece) if framing == "chunked" else piece)
            await asyncio.sleep(0)
        if framing == "chunked":
            await peer.send(LAST_CHUNK)
        elif framing == "close":
            peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door, body=BODY)
        await door.settled()
    assert answer.is_whole
    assert answer.body == STREAM
    ((_, outcome),) = door.brain.outcomes
    assert outcome.kind is OutcomeKind.COMPLETED
    assert (outcome.prompt_tokens, outcome.cached_tokens) == (40, 32)
    assert list(door.brain.first_bytes.values()) == [1]


NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"
FRAMINGS = {
    "a length": ("POST", response(b'{"a":1}')),
    "an empty body": ("POST", response(b"")),
    "chunks": ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"a") + LAST_CHUNK),
    "a stream": ("POST", SSE_HEAD + chunk(b"data: 1\n\n") + LAST_CHUNK),
    "trailers": ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n"),
    "204": ("DELETE", NO_BODY),
    "304": ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'),
    "an error": ("POST", response(b'{"error":{}}', status=404)),
    "interim answers": ("POST", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" + response(b"x")),
}  # fmt: skip
NUM_ROUNDS = 5


async def test_connections_are_kept_on_both_sides_whatever_the_framing() -> None:
    """One connection of the client, one to the worker: an accept for as many requests as there are."""

    async def script(peer: Peer) -> None:
        await peer.send(FRAMINGS[peer.request.values("x-case")[0]][1])

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for _ in range(NUM_ROUNDS):
                for case, (method, raw) in FRAMINGS.items():
                    body = b'{"model":"m"}' if method == "POST" else None
                    await client.send(method, CHAT, [("X-Case", case)], body)
                    answer = await client.answer(method=method)
                    assert str(answer.status) in raw.decode("latin-1"), case
                    assert answer.values("x-t") == answer.values("link") == [], case
                    names = [name.lower() for name, _ in answer.headers]
                    assert len({"content-length", "transfer-encoding"} & set(names)) <= 1, case
        await door.settled()
    assert len(worker.requests) == NUM_ROUNDS * len(FRAMINGS)
    assert worker.num_accepts == 1


async def test_as_many_connections_to_a_worker_as_requests_at_once() -> None:
    num_clients = 8

    async def script(peer: Peer) -> None:
        await peer.send(response(b"{}"))

    async def many(port: int) -> None:
        async with connect(port) as client:
            for _ in range(20):
                await client.send("POST", CHAT, body=b'{"model":"m"}')
                assert (await client.answer()).status == 200

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        await asyncio.gather(*(many(door.port) for _ in range(num_clients)))
        await door.settled()
    assert len(worker.requests) == 20 * num_clients
    assert worker.num_accepts <= num_clients


async def test_after_abandoned_streams_their_connections_are_closed_and_new_requests_are_served() -> (
    None
):
    hold = asyncio.Event()

    async def script(peer: Peer) -> None:
        if peer.request.target == "/x":
            await peer.send(response(b"ok"))
            return
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        waits = [asyncio.ensure_future(wait) for wait in (hold.wait(), peer.gone())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        if hold.is_set():
            await peer.send(LAST_CHUNK)
        else:
            peer.close()

    async def begun(port: int) -> WireClient:
        client = WireClient(*await asyncio.open_connection("127.0.0.1", port))
        await client.send("POST", CHAT, body=BODY)
        await client.head()
        assert await client.chunk() == b"data: 1\n\n"
        return client

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        upstream = door.relay.upstream
        assert isinstance(upstream, Upstream)
        clients = await asyncio.gather(*(begun(door.port) for _ in range(120)))
        assert upstream.num_open == 120
        for client in clients[:60]:
            client.close()
        while upstream.num_open > 60:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        hold.set()
        for client in clients[60:]:
            assert await client.chunk() == b""
            client.close()
        answers = await asyncio.gather(*(ask(door, "GET", "/x", body=None) for _ in range(20)))
        assert [answer.body for answer in answers] == [b"ok"] * 20
        await door.settled()
        assert worker.num_accepts == 120
        assert upstream.num_open <= 60
        upstream.check()


TEXT = b'{"text": "' + b"a b c " * 1_000 + b'"}'
CODINGS = {"gzip": gzip.compress(TEXT), "deflate": zlib.compress(TEXT), "identity": TEXT}


@pytest.mark.parametrize("accepted", ["gzip", "deflate", "identity", "gzip, deflate, br"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_clients_decode_what_they_accept(accepted: str, is_chunked: bool) -> None:
    """The worker codes as it is asked to; the label always matches the bytes."""

    async def script(peer: Peer) -> None:
        (asked,) = peer.request.values("accept-encoding")
        coding = asked.split(",")[0]
        head = (("Content-Encoding", coding), ("Vary", "Accept-Encoding"), ("Vary", "Origin"))
        if is_chunked:
            lines = "".join(f"{name}: {value}\r\n" for name, value in head)
            data = CODINGS[coding]
            await peer.send(
                f"HTTP/1.1 200 OK\r\n{lines}Transfer-Encoding: chunked\r\n\r\n".encode()
                + chunk(data[:7])
                + chunk(data[7:])
                + LAST_CHUNK
            )
        else:
            await peer.send(response(CODINGS[coding], headers=head))

    async with (
        stub_worker(script) as worker,
        front_door(worker.url) as door,
        httpx.AsyncClient(base_url=door.url) as client,
    ):
        for path in (CHAT, "/x"):
            answer = await client.post(
                path, json={"model": "m"}, headers={"accept-encoding": accepted}
            )
            assert answer.content == TEXT
            assert answer.headers.get_list("vary") == ["Accept-Encoding", "Origin"]
        await door.settled()
    assert worker.num_accepts == 1
