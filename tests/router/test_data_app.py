"""The data port before well-behaved workers: refusals, bodies, prompts, own routes."""

import asyncio
import gzip
import json

import pytest

from prompt import BUNDLED_MODEL_NAME
from router.data_app import DataLimits
from tests.router.front_door import ask, bundled_model, connect, front_door
from tests.router.stub_worker import LAST_CHUNK, Peer, answering, chunk, response, stub_worker

CHAT = "/v1/chat/completions"
JSON = [("Content-Type", "application/json; charset=utf-8")]


async def echo(peer: Peer) -> None:
    await peer.send(response(peer.request.body))


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
    assert door.counters.overloaded == {"max_in_flight": 1}
    assert len(worker.requests) == 1


@pytest.mark.parametrize(
    "target",
    [
        "/v1/embeddings",
        "/v1/embeddings/",
        "/v1/rerank",
        "/rerank",
        "/v2/rerank",
        "/v1/score",
        "/score",
        "/classify",
        "/pooling",
        "/tokenize",
        "/detokenize",
        "/v1/audio/speech",
        "/v1/messages/count_tokens",
    ],
)
async def test_an_unrouted_path_goes_by_load_and_its_model(target: str) -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        for body, status in ((b'{"model":"m"}', 200), (b'{"model":"no"}', 404), (b"{", 200)):
            answer = await ask(door, "POST", target, JSON, body)
            assert answer.status == status
            if status == 404:
                error = json.loads(answer.body)["error"]
                assert (error["code"], error["param"]) == ("model_not_found", "model")
        await door.settled()
    assert [request.model for request in door.brain.requests] == ["m", "no", None]
    assert all(request.api == "other" for request in door.brain.requests)
    assert [request.target for request in worker.requests] == [target, target]


async def test_on_a_path_that_is_not_known_model_may_mean_something_else() -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        for target in ("/update_weights", "/v1/load_lora_adapter", "/invocations"):
            assert (await ask(door, "POST", target, JSON, b'{"model":"no"}')).status == 200
        await door.settled()
    assert len(worker.requests) == 3


def form(model: str, size: int) -> bytes:
    """As clients send it whose file comes first."""
    head = 'Content-Disposition: form-data; name="{}"{}\r\n\r\n'
    file = head.format("file", '; filename="a.wav"').encode() + b"\x00\xff" * (size // 2)
    return b"--b\r\n%s\r\n--b\r\n%s\r\n--b--\r\n" % (
        file,
        head.format("model", "").encode() + model.encode(),
    )


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("target", ["/v1/audio/transcriptions", "/v1/audio/translations"])
async def test_a_form_goes_by_its_model_and_stays_as_it_is(target: str, size: int) -> None:
    headers = [("Content-Type", "multipart/form-data; boundary=b")]
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        bodies = {model: form(model, size) for model in ("m", "no", "")}
        answers = {
            model: await ask(door, "POST", target, headers, body) for model, body in bodies.items()
        }
        await door.settled()
    assert [answer.status for answer in answers.values()] == [200, 404, 200]
    assert [request.body for request in worker.requests] == [bodies["m"], bodies[""]]
    assert worker.requests[0].values("content-type") == ["multipart/form-data; boundary=b"]
    assert [request.model for request in door.brain.requests] == ["m", "no", None]


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
