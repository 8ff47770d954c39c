"""The data port before well-behaved workers: bytes, headers, own routes, refusals."""

import asyncio
import gzip
import json

import pytest

from prompt import BUNDLED_MODEL_NAME
from router.data_app import DataLimits
from scoring import OutcomeKind
from tests.router.front_door import ask, bundled_model, connect, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    answering,
    chunk,
    response,
    stub_worker,
)

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
        ("POST", "/v1/embeddings", b'{"model":"another"}'),
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


async def test_the_rank_is_named_and_pinned() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url, num_ranks=2) as door:
        first = await ask(door, headers=[("x-data-parallel-rank", "7")])
    assert first.values("x-kvroute-worker") == ["w0"]
    assert first.values("x-kvroute-dp-rank") == ["0"]
    assert worker.requests[0].values("x-data-parallel-rank") == ["0"]


async def test_a_single_rank_is_not_pinned() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        await ask(door)
    assert worker.requests[0].values("x-data-parallel-rank") == []


GZIPPED = gzip.compress(b'{"answer": "' + b"x" * 500 + b'"}')


@pytest.mark.parametrize(
    ("raw", "status", "body", "present", "absent"),
    [
        pytest.param(
            response(GZIPPED, headers=(("Content-Encoding", "gzip"),)),
            200, GZIPPED, [("content-encoding", "gzip")], ["transfer-encoding"],
            id="gzip with length",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            200, b"abcde", [("transfer-encoding", "chunked")], ["content-length"],
            id="chunked",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
            200, b"until the end", [("transfer-encoding", "chunked")], ["content-length"],
            id="close delimited",
        ),
        pytest.param(
            b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
            204, b"", [("x-a", "1")], ["content-length", "transfer-encoding"],
            id="no content",
        ),
        pytest.param(
            b"HTTP/1.1 304 Not Modified\r\nETag: e\r\nContent-Length: 5\r\n\r\n",
            304, b"", [("etag", "e")], ["content-length", "transfer-encoding"],
            id="not modified",
        ),
        pytest.param(
            response(b"{}", headers=(("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))),
            200, b"{}", [("set-cookie", "a=1"), ("set-cookie", "b=2")], [],
            id="two cookies",
        ),
        pytest.param(
            response(b"{}", headers=(("Connection", "close, X-Foo"), ("X-Foo", "1"), ("X-Bar", "2"))),
            200, b"{}", [("x-bar", "2")], ["x-foo"],
            id="named by connection",
        ),
        pytest.param(
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + response(b"{}"),
            200, b"{}", [], ["link"],
            id="informational first",
        ),
        pytest.param(
            response(b"", status=307, headers=(("Location", "http://elsewhere/x"),)),
            307, b"", [("location", "http://elsewhere/x")], [],
            id="redirects are the client's",
        ),
        pytest.param(
            response(b'{"detail":"Not Found"}', status=404),
            404, b'{"detail":"Not Found"}', [("content-type", "application/json")], [],
            id="an error of the worker",
        ),
    ],
)  # fmt: skip
async def test_answers_pass_as_they_are(
    raw: bytes, status: int, body: bytes, present: list[tuple[str, str]], absent: list[str]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(raw)
        if b"close" in raw.split(b"\r\n\r\n", 1)[0]:
            peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.status, answer.body, answer.is_whole) == (status, body, True)
    names = [name.lower() for name, _ in answer.headers]
    assert [field for field in answer.headers if field in present] == present
    assert not set(absent) & set(names)
    assert names.count("content-length") + names.count("transfer-encoding") <= 1
    assert "server" not in names
    assert door.brain.kinds == [
        OutcomeKind.CLIENT_ERROR if status == 404 else OutcomeKind.COMPLETED
    ]


async def test_head_has_the_length_and_no_body() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-A: 1\r\n\r\n"
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for _ in range(2):
                await client.send("HEAD", "/file")
                answer = await client.answer(method="HEAD")
                assert answer.values("content-length") == ["1234"]
        await door.settled()
    assert worker.num_accepts == 1


@pytest.mark.parametrize(
    "data", [response(b"abc"), SSE_HEAD + chunk(b"a") + chunk(b"bc") + LAST_CHUNK]
)
async def test_an_http_1_0_client_gets_no_chunks(data: bytes) -> None:
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(b"GET /x HTTP/1.0\r\n\r\n")
            answer = await client.head()
            assert await client.reader.read() == b"abc"
        await door.settled()
    assert answer.status == 200
    assert answer.values("transfer-encoding") == []
    assert answer.values("connection") == ["close"]


async def test_a_stream_reaches_an_http_1_0_client_as_it_comes() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await release.wait()
        await peer.send(chunk(b"data: 2\n\n") + LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(b"GET /x HTTP/1.0\r\n\r\n")
            await client.head()
            assert await client.reader.readexactly(9) == b"data: 1\n\n"
            release.set()
            assert await client.reader.read() == b"data: 2\n\n"
        await door.settled()
    assert door.brain.kinds == [OutcomeKind.COMPLETED]


async def test_an_http_1_0_client_can_tell_a_broken_answer() -> None:
    """By a reset, after all that there was of it."""

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(b"GET /x HTTP/1.0\r\n\r\n")
            assert (await client.head()).status == 200
            body = await client.reader.readuntil(b"}}\n\n")
            with pytest.raises(ConnectionResetError):
                await client.reader.read()
        await door.settled()
    assert body.startswith(b'data: 1\n\ndata: {"error":{')
    assert door.counters.broken_streams == 1
    assert door.brain.kinds == [OutcomeKind.BROKEN_OFF]


async def test_workers_need_not_be_named() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url, names_worker=False) as door:
        answer = await ask(door)
    assert answer.values("x-kvroute-worker") == answer.values("x-kvroute-dp-rank") == []
    assert answer.values("x-request-id")


async def test_upstream_connections_are_reused() -> None:
    num_requests = 40
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            for _ in range(num_requests):
                await client.send("POST", CHAT, body=b'{"model":"m"}')
                assert (await client.answer()).status == 200
        await door.settled()
    assert len(worker.requests) == num_requests
    assert worker.num_accepts == 1


async def test_chunked_answers_leave_the_connection_reusable() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        for _ in range(5):
            assert (await ask(door)).body == b"data: 1\n\n"
    assert worker.num_accepts == 1


async def test_each_chunk_reaches_the_client_before_the_next_is_sent() -> None:
    """In lockstep: the worker sends a chunk only once the client has the one before."""
    received = asyncio.Semaphore(0)
    events = [b"data: %d\n\n" % number for number in range(20)]

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for event in events:
            await peer.send(chunk(event))
            await received.acquire()
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            await client.send("POST", CHAT, body=b'{"model":"m","stream":true}')
            await client.head()
            for number, event in enumerate(events):
                assert await client.chunk() == event
                assert len(door.brain.first_bytes) == 1, number
                received.release()
            assert await client.chunk() == b""
        await door.settled()
    assert list(door.brain.first_bytes.values()) == [1]


async def test_a_stream_in_single_bytes_stays_the_same() -> None:
    text = "data: 안녕 🙂\r\n\r\n: comment\n\ndata: " + "x" * 2000 + "\n\ndata: [DONE]\n\n"

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for byte in text.encode():
            await peer.send(chunk(bytes([byte])))
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door)
    assert answer.body == text.encode()


async def test_a_large_event_and_a_large_body_pass() -> None:
    event = b"data: " + b"y" * 300_000 + b"\n\n"
    data = SSE_HEAD + chunk(event) + LAST_CHUNK
    body = json.dumps({"model": "m", "image": "z" * (9 * 1024 * 1024)}).encode()
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        answer = await ask(door, body=body)
    assert answer.body == event
    assert worker.requests[0].body == body


async def test_usage_is_read_from_the_end() -> None:
    usage = {
        "prompt_tokens": 236,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 224},
    }
    data = response(json.dumps({"choices": ["x" * 9000], "usage": usage, "metrics": None}).encode())
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        await ask(door)
        await door.settled()
    ((_, outcome),) = door.brain.outcomes
    assert (outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens) == (236, 224, 4)
    assert door.counters.reported_cached_tokens == 224
    assert door.counters.predicted_cached_tokens == 8
    assert not door.brain.first_bytes  # an answer in one piece has no first token


CONTENT_EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
ERROR_EVENT = b'data: {"error":{"message":"died","code":500}}\n\n'
DONE_EVENT = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("events", "num_first_bytes", "kind"),
    [
        ((ERROR_EVENT + DONE_EVENT,), 0, OutcomeKind.WORKER_ERROR),
        ((ERROR_EVENT, DONE_EVENT), 0, OutcomeKind.WORKER_ERROR),
        ((b": ping\n\n", ERROR_EVENT, DONE_EVENT), 0, OutcomeKind.WORKER_ERROR),
        ((ERROR_EVENT, b": " + b"x" * 9000 + b"\n\n"), 0, OutcomeKind.WORKER_ERROR),
        ((b'event: error\ndata: {"code":1}\n\n',), 0, OutcomeKind.WORKER_ERROR),
        ((b": ping\n\n", b": ping\n\n"), 0, OutcomeKind.WORKER_ERROR),
        ((b": ping\n\n", CONTENT_EVENT, DONE_EVENT), 1, OutcomeKind.COMPLETED),
        ((CONTENT_EVENT, ERROR_EVENT), 1, OutcomeKind.WORKER_ERROR),
    ],
)
async def test_only_content_is_evidence_of_a_prompt(
    events: tuple[bytes, ...], num_first_bytes: int, kind: OutcomeKind
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for event in events:
            await peer.send(chunk(event))
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.is_whole, answer.body) == (True, b"".join(events))
    assert len(door.brain.first_bytes) == num_first_bytes
    assert door.brain.kinds == [kind]


async def test_a_refusal_in_the_shape_of_a_stream_is_no_evidence() -> None:
    head = SSE_HEAD.replace(b"200 OK", b"400 Bad Request")
    data = head + chunk(CONTENT_EVENT) + LAST_CHUNK
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        assert (await ask(door)).status == 400
        await door.settled()
    assert not door.brain.first_bytes
    assert door.brain.kinds == [OutcomeKind.CLIENT_ERROR]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b"", 400), (b'{"model":"nobody"}', 404), (b'{"model":1}', 200)],
)
async def test_what_a_client_gets_wrong(body: bytes, status: int) -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        answer = await ask(door, body=body)
        await door.settled()
    assert answer.status == status
    if status != 200:
        error = json.loads(answer.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert answer.values("x-request-id")
        assert not worker.requests


async def test_an_unknown_model_is_not_unknown_before_all_workers_are_known() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        door.fleet.has_settled = False
        answer = await ask(door, body=b'{"model":"later"}')
    assert answer.status == 503
    assert answer.values("retry-after") == ["1"]


async def test_no_worker_is_503_with_retry_after() -> None:
    async with front_door() as door:
        answer = await ask(door)
    assert answer.status == 503
    assert answer.values("retry-after") == ["1"]
    assert json.loads(answer.body)["error"]["code"] == "no_worker"


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_over_the_limit_is_refused(is_chunked: bool) -> None:
    limits = DataLimits(max_body_bytes=1000)
    async with stub_worker(echo) as worker, front_door(worker.url, limits=limits) as door:
        async with connect(door.port) as client:
            if is_chunked:
                await client.send("POST", CHAT, [("Transfer-Encoding", "chunked")])
                client.writer.write(chunk(b"x" * 1001) + LAST_CHUNK)
            else:
                await client.send("POST", CHAT, body=b"x" * 1001)
            answer = await client.answer()
        exact = await ask(door, "POST", "/raw", body=b"x" * 1000)
        await door.settled()
    assert answer.status == 413
    assert json.loads(answer.body)["error"]["code"] == "body_too_large"
    assert exact.status == 200
    assert len(worker.requests) == 1
    assert door.counters.body_too_large == 1


async def test_an_expected_body_that_is_too_large_is_never_asked_for() -> None:
    limits = DataLimits(max_body_bytes=10)
    async with front_door(limits=limits) as door, connect(door.port) as client:
        head = [("Expect", "100-continue"), ("Content-Length", "11")]
        await client.send("POST", CHAT, head)
        assert (await client.answer()).status == 413


async def test_an_expectation_is_met_here_and_not_passed_on() -> None:
    async with (
        stub_worker(echo) as worker,
        front_door(worker.url) as door,
        connect(door.port) as client,
    ):
        await client.send("POST", "/raw", [("Expect", "100-continue"), ("Content-Length", "2")])
        assert (await client.head()).status == 100
        client.writer.write(b"hi")
        assert (await client.answer()).body == b"hi"
    assert worker.requests[0].values("expect") == []


async def test_compressed_bodies_pass_untouched_and_go_by_load() -> None:
    body = gzip.compress(b'{"model":"m"}')
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        await ask(door, headers=[("Content-Encoding", "gzip")], body=body)
    assert worker.requests[0].body == body
    assert worker.requests[0].values("content-encoding") == ["gzip"]
    assert door.brain.requests[0].tokens is None
    assert door.counters.unrouted == {"encoded_body": 1}


@pytest.mark.parametrize("num_chars", [20, 100_000])
async def test_prompts_are_tokenized_inline_or_in_a_thread(num_chars: int) -> None:
    model = bundled_model()
    messages = [{"role": "user", "content": "word " * (num_chars // 5)}]
    body = json.dumps({"model": BUNDLED_MODEL_NAME, "messages": messages}).encode()
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        door.fleet.model = model
        door.brain.model = BUNDLED_MODEL_NAME
        await ask(door, body=body)
    (planned,) = door.brain.requests
    rendered = model.encode(model.render_chat({"messages": messages}), add_special_tokens=False)
    assert planned.tokens is not None
    assert len(planned.tokens) == 4 * len(rendered)
    assert set(planned.timing_us) == {"render", "tokenize"}
    assert worker.requests[0].body == body


async def test_a_prompt_without_tokens_is_served_by_load_and_counted() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"a"}],"truncate_prompt_tokens":5}'
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        assert (await ask(door, body=body)).status == 200
        door.fleet.model = bundled_model()
        assert (await ask(door, body=body)).status == 200
    assert door.counters.unrouted == {"no_tokenizer": 1, "unsupported_content": 1}
    assert door.counters.cut_prompts == 0


async def test_a_prompt_with_an_image_is_served_by_what_comes_before_it() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":["a",{"type":"image_url"}]}]}'
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        door.fleet.model = bundled_model()
        assert (await ask(door, body=body)).status == 200
    (planned,) = door.brain.requests
    assert planned.is_cut
    assert planned.tokens
    assert worker.requests[0].body == body
    assert (door.counters.unrouted, door.counters.cut_prompts) == ({}, 1)


async def test_a_prompt_that_is_too_long_is_refused_by_a_worker() -> None:
    data = response(b'{"error":{"message":"maximum context length"}}', status=400)
    body = b'{"model":"m","messages":[{"role":"user","content":"far too long"}]}'
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        door.fleet.model = bundled_model()
        door.brain.max_tokens = 2
        answer = await ask(door, body=body)
        await door.settled()
    assert (answer.status, answer.body) == (400, data.split(b"\r\n\r\n")[1])
    assert [request.tokens is None for request in door.brain.requests] == [False, True]


async def test_own_routes() -> None:
    cards = ({"id": "a/b", "object": "model"}, {"id": "m", "object": "model"})
    async with front_door() as door:
        door.fleet.cards = cards
        assert (await ask(door, "GET", "/health", body=None)).status == 200
        assert (await ask(door, "GET", "/ready", body=None)).status == 200
        door.fleet.is_ready = False
        waiting = await ask(door, "GET", "/ready", body=None)
        assert (waiting.status, waiting.values("retry-after")) == (503, ["1"])
        head = await ask(door, "HEAD", "/health", body=None)
        assert (head.status, head.values("content-length")) == (200, ["16"])
        assert waiting.body.endswith(b"}\n")
        listed = await ask(door, "GET", "/v1/models", body=None)
        assert json.loads(listed.body) == {"object": "list", "data": list(cards)}
        assert json.loads((await ask(door, "GET", "/v1/models/a/b", body=None)).body) == cards[0]
        assert (await ask(door, "GET", "/v1/models/no", body=None)).status == 404
        wrong = await ask(door, "POST", "/health", body=b"")
        assert (wrong.status, wrong.values("allow")) == (405, ["GET, HEAD, OPTIONS"])


async def test_requests_beyond_the_limit_get_429_at_once() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await release.wait()
        await peer.send(response(b"{}"))

    limits = DataLimits(max_in_flight=1)
    async with stub_worker(script) as worker, front_door(worker.url, limits=limits) as door:
        async with connect(door.port) as first:
            await first.send("POST", CHAT, body=b'{"model":"m"}')
            await worker.arrived.acquire()
            refused = await ask(door)
            assert (refused.status, refused.values("retry-after")) == (429, ["1"])
            release.set()
            assert (await first.answer()).status == 200
        await door.settled()
    assert door.counters.overloaded == 1
    assert len(worker.requests) == 1


async def test_an_unrouted_path_asks_for_load_and_its_model() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        json_type = [("Content-Type", "application/json; charset=utf-8")]
        assert (
            await ask(door, "POST", "/v1/embeddings", json_type, b'{"model":"m"}')
        ).status == 200
        assert (
            await ask(door, "POST", "/v1/embeddings", json_type, b'{"model":"no"}')
        ).status == 200
        assert (await ask(door, "POST", "/v1/embeddings", json_type, b"{")).status == 200
        await door.settled()
    assert [request.model for request in door.brain.requests] == ["m", "no", None, None]
    assert all(request.api == "other" for request in door.brain.requests)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v1/completions/", "/v1/completions"),
        (CHAT + "/?a=/", CHAT + "?a=/"),
        ("/generate/", "/generate"),
        ("/other/", "/other/"),
        ("/v1/completions//", "/v1/completions//"),
    ],
)
async def test_a_routed_path_loses_its_trailing_slash(target: str, expected: str) -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        await ask(door, target=target)
        await door.settled()
    assert worker.requests[0].target == expected


async def test_a_redirect_of_the_worker_to_itself_stays_here() -> None:
    async def redirect(peer: Peer) -> None:
        headers = (("Location", f"{worker.url}/v1/thing/"),)
        await peer.send(response(b"", status=307, headers=headers))

    async with stub_worker(redirect) as worker, front_door(worker.url) as door:
        answer = await ask(door, target="/v1/thing")
        await door.settled()
    assert (answer.status, answer.values("location")) == (307, ["/v1/thing/"])
