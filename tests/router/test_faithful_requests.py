"""Requests that no schema, method or path of the router's own knows reach the worker as they were sent."""

import gzip
import json
import tracemalloc

import pytest

from prompt import BUNDLED_MODEL_NAME
from tests.router.front_door import WireAnswer, ask, bundled_model, connect, front_door
from tests.router.stub_worker import LAST_CHUNK, Peer, StubRequest, chunk, response, stub_worker

JSON = [("Content-Type", "application/json")]
ROUTED = ("/v1/chat/completions", "/v1/completions", "/generate", "/v1/responses", "/v1/messages")
VENDOR = """
    "top_k": -1, "min_p": 0, "repetition_penalty": 1.0, "guided_json": {"a": [{"b": null}]},
    "chat_template_kwargs": {"enable_thinking": false}, "separate_reasoning": true,
    "nvext": {"annotations": ["x"], "deep": {"er": {"est": [[[]]]}}}, "seed": 9007199254740993,
    "big": 18446744073709551615, "one": 1.0, "exp": 1E+2, "tiny": 1e-400, "neg": -0.0,
    "text_": "é\\u00e9 \\ud83d\\ude42 안녕 \\u0000", "dup": 1, "dup": 2, "": "empty name"
"""
CHAT = """{
    "model": "%s",
    "messages": [
        {"role": "user", "content": "hi", "name": "n", "x-vendor": [1]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{ not json"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"}
    ],
    "prompt": "hi", "text": "hi", "input": "hi", "max_tokens": 5,
    "tools": [{"type": "function", "function": {"name": "f"}}],%s}"""


EXPANDED = 64 << 20
BOMB = gzip.compress(bytes(EXPANDED), 1)


async def echo(peer: Peer) -> None:
    await peer.send(response(peer.request.body))


@pytest.mark.parametrize("has_tokenizer", [True, False])
@pytest.mark.parametrize("target", ROUTED)
async def test_bodies_with_fields_that_only_engines_know(target: str, has_tokenizer: bool) -> None:
    body = (CHAT % (BUNDLED_MODEL_NAME, VENDOR)).encode()
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        door.brain.model = BUNDLED_MODEL_NAME
        door.fleet.model = bundled_model() if has_tokenizer else None
        answer = await ask(door, "POST", target, JSON, body)
        await door.settled()
    assert (answer.status, answer.body) == (200, body)
    assert worker.requests[0].body == body
    assert door.counters.internal_errors == 0


ODD_BODIES = {
    "an empty object": b"{}",
    "messages that are none": b'{"messages":5}',
    "roles that are none": b'{"messages":[{"role":7},[],null,"x"]}',
    "numbers for text": b'{"model":5,"prompt":7,"text":[],"input":{},"stream":"yes"}',
    "deeply nested": b'{"x":%s%s}' % (b"[" * 200, b"]" * 200),
    "not a number": b'{"temperature":NaN}',
    "a lone surrogate": b'{"prompt":"\\ud800","messages":[{"role":"user","content":"\\udfff"}]}',
    "a byte order mark": b'\xef\xbb\xbf{"prompt":"x"}',
    "white space around": b' \r\n\t{"prompt":"x"}\n ',
}


@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES.keys())
@pytest.mark.parametrize("target", ROUTED)
async def test_bodies_are_judged_by_engines(target: str, body: bytes) -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        door.fleet.model = bundled_model()
        answer = await ask(door, "POST", target, JSON, body)
        await door.settled()
    assert (answer.status, worker.requests[0].body) == (200, body)


async def served(
    method: str, target: str, body: bytes | None = None
) -> tuple[WireAnswer, StubRequest]:
    async def script(peer: Peer) -> None:
        has_body = peer.request.method != "HEAD"
        data = response(b"ok" if has_body else b"", status=405 if method == "GET" else 200)
        await peer.send(data)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door, method, target, JSON, body)
        await door.settled()
    (request,) = worker.requests
    return answer, request


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "PUT", "PATCH", "POST"]
)
@pytest.mark.parametrize(
    "target",
    [
        "/unregistered?x=1&x=2",
        "/unregistered/?x=1&x=2&=&&y",
        "/a%2Fb/%2e%2e/c%3Fd?q=%26&Q=+",
        "/tokenize",
        "/v1/chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/responses/r%2F1/input_items?after=a&after=b",
    ],
)  # fmt: skip
async def test_methods_targets_and_answers_pass(method: str, target: str) -> None:
    has_body = method in ("PUT", "PATCH", "POST", "DELETE")
    answer, request = await served(method, target, b'{"model":"m"}' if has_body else None)
    assert (request.method, request.target) == (method, target)
    assert request.body == (b'{"model":"m"}' if has_body else b"")
    assert answer.status == (405 if method == "GET" else 200)
    assert answer.values("location") == []


@pytest.mark.parametrize("line", [b"CONNECT r:443", b"CONNECT /x", b"OPTIONS *", b"GET r:443"])
async def test_what_asks_for_no_path_is_refused(line: bytes) -> None:
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        async with connect(door.port) as client:
            client.writer.write(line + b" HTTP/1.1\r\nHost: r\r\n\r\n")
            answer = await client.answer()
        assert answer.status == 400
        assert json.loads(answer.body)["error"]["code"] == "malformed_request"
    assert not worker.requests


async def test_probes_by_head_have_no_body() -> None:
    async with front_door() as door, connect(door.port) as client:
        for target in ("/health", "/ready", "/v1/models", "/health/"):
            for method in ("HEAD", "GET"):
                await client.send(method, target)
                answer = await client.answer(method=method)
                assert answer.status == 200
                assert bool(answer.body) is (method == "GET")


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_image_of_nine_mebibytes_passes_by_default(is_chunked: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (9 << 20)}}
    content = [{"type": "text", "text": "what is this?"}, image]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        door.fleet.model = bundled_model()
        async with connect(door.port) as client:
            if is_chunked:
                await client.send("POST", ROUTED[0], [*JSON, ("Transfer-Encoding", "chunked")])
                for at in range(0, len(body), 1 << 20):
                    client.writer.write(chunk(body[at : at + (1 << 20)]))
                client.writer.write(LAST_CHUNK)
            else:
                await client.send("POST", ROUTED[0], JSON, body)
            answer = await client.answer()
        await door.settled()
    assert (answer.status, len(answer.body)) == (200, len(body))
    assert worker.requests[0].body == body
    assert worker.requests[0].values("content-length") == [str(len(body))]


@pytest.mark.parametrize(
    "coding", ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, gzip", "GZIP"]
)
@pytest.mark.parametrize("target", [ROUTED[0], "/v1/embeddings", "/unregistered"])
async def test_a_body_that_expands_to_much_is_not_expanded_here(target: str, coding: str) -> None:
    headers = [*JSON, ("Content-Encoding", coding)]
    async with stub_worker(echo) as worker, front_door(worker.url) as door:
        tracemalloc.start()
        try:
            answer = await ask(door, "POST", target, headers, BOMB)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await door.settled()
    assert answer.status == 200
    assert worker.requests[0].body == BOMB
    assert worker.requests[0].values("content-encoding") == [coding]
    assert peak < EXPANDED // 8
