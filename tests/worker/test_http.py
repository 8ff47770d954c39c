"""The worker's HTTP surface over a real port: shapes, errors, and clients that leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from scripts.write_reference import REFERENCE
from tests.worker.served import served, small, until

CHAT = {"messages": [{"role": "user", "content": "Tell me about the sea and the ships on it."}]}
LONG = {"messages": [{"role": "user", "content": "word " * 200}]}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Of a quick worker."""
    async with served(small()) as client:
        yield client


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The JSON of every event of a stream; it must end as it should."""
    events = text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


async def test_chat(client: httpx.AsyncClient) -> None:
    first = await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 5})
    assert first.status_code == 200
    body = first.json()
    choice = body["choices"][0]
    assert body["object"] == "chat.completion"
    assert body["model"] == "kvroute-sim"
    assert choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 5
    assert body["usage"]["completion_tokens"] == 5
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    again = (await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 5})).json()
    assert again["choices"][0]["message"] == choice["message"]
    assert again["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}


async def test_chat_stream(client: httpx.AsyncClient) -> None:
    options = {"stream": True, "max_tokens": 4, "stream_options": {"include_usage": True}}
    whole = await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 4})
    answer = await client.post("/v1/chat/completions", json=CHAT | options)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    role, *contents, usage = chunks_of(answer.text)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (
        "".join(c["choices"][0]["delta"]["content"] for c in contents)
        == (whole.json()["choices"][0]["message"]["content"])
    )
    finishes = [c["choices"][0]["finish_reason"] for c in contents]
    assert finishes == [*[None] * (len(contents) - 1), "length"]
    assert usage["choices"] == []
    assert usage["usage"] == whole.json()["usage"] | {
        "prompt_tokens_details": {"cached_tokens": 16}
    }
    assert {c["id"] for c in (role, *contents, usage)} == {role["id"]}


async def test_stream_without_usage_ends_with_the_last_token(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert chunks_of(answer.text)[-1]["choices"][0]["finish_reason"] == "length"


async def test_next_turn_finds_the_answer_in_the_cache(client: httpx.AsyncClient) -> None:
    first = (await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 40})).json()
    messages = [
        *CHAT["messages"],
        first["choices"][0]["message"],
        {"role": "user", "content": "And then?"},
    ]
    second = (await client.post("/v1/chat/completions", json={"messages": messages})).json()
    computed = first["usage"]["total_tokens"] - 1
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == computed // 16 * 16


@pytest.mark.parametrize("prompt", ["hello there", [5, 6, 7], [[5, 6, 7]]])
async def test_completions(client: httpx.AsyncClient, prompt: object) -> None:
    fields = {"model": "kvroute-sim", "prompt": prompt, "max_tokens": 3, "return_token_ids": True}
    whole = (await client.post("/v1/completions", json=fields)).json()
    assert whole["object"] == "text_completion"
    assert len(whole["choices"][0]["token_ids"]) == 3
    assert whole["usage"]["prompt_tokens"] == len(whole["prompt_token_ids"])
    stream = await client.post("/v1/completions", json=fields | {"stream": True})
    chunks = [chunk["choices"][0] for chunk in chunks_of(stream.text)]
    assert "".join(chunk["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert [i for c in chunks for i in c["token_ids"]] == whole["choices"][0]["token_ids"]


async def test_generate(client: httpx.AsyncClient) -> None:
    fields = {"input_ids": list(range(5, 45)), "sampling_params": {"max_new_tokens": 3}, "rid": "r"}
    whole = (await client.post("/generate", json=fields)).json()
    assert whole["meta_info"] == {
        "id": "r",
        "finish_reason": {"type": "length", "length": 3},
        "prompt_tokens": 40,
        "completion_tokens": 3,
        "cached_tokens": 0,
        "cached_tokens_details": {"device": 0, "host": 0, "storage": 0},
        "dp_rank": 0,
    }
    stream = chunks_of((await client.post("/generate", json=fields | {"stream": True})).text)
    assert stream[-1]["text"] == whole["text"]
    assert stream[-1]["output_ids"] == whole["output_ids"]
    assert stream[-1]["meta_info"]["cached_tokens"] == 32


async def test_tokenize_and_back(client: httpx.AsyncClient) -> None:
    plain = (await client.post("/tokenize", json={"prompt": "hello there"})).json()
    assert plain["count"] == len(plain["tokens"])
    assert plain["max_model_len"] == 4_096
    bare = {"prompt": "hello there", "add_special_tokens": False, "return_token_strs": True}
    strings = (await client.post("/tokenize", json=bare)).json()
    assert "".join(strings["token_strs"]) == "hello there"
    text = (await client.post("/detokenize", json={"tokens": strings["tokens"]})).json()
    assert text == {"prompt": "hello there"}
    chat = (await client.post("/tokenize", json=CHAT)).json()
    served_ids = await client.post(
        "/v1/chat/completions", json=CHAT | {"return_token_ids": True, "max_tokens": 1}
    )
    assert served_ids.json()["prompt_token_ids"] == chat["tokens"]


BAD_REQUESTS: list[tuple[str, object, int, str]] = [
    ("/v1/chat/completions", b"{", 400, "JSON"),
    ("/v1/chat/completions", b"[]", 400, "object"),
    ("/v1/chat/completions", {"messages": "bad"}, 400, ""),
    ("/v1/chat/completions", {}, 400, ""),
    ("/v1/chat/completions", CHAT | {"model": "nope"}, 404, "`nope` does not exist"),
    ("/v1/chat/completions", CHAT | {"n": 2}, 400, "n must be 1"),
    ("/v1/chat/completions", CHAT | {"stream": "yes"}, 400, "stream"),
    ("/v1/chat/completions", CHAT | {"priority": "high"}, 400, "priority"),
    ("/generate", {"text": "x", "priority": True}, 400, "priority"),
    ("/v1/chat/completions", CHAT | {"max_tokens": 0}, 400, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"max_completion_tokens": "3"}, 400, "max_completion_tokens"),
    ("/v1/chat/completions", CHAT | {"max_tokens": 5_000}, 400, "context length is 4096"),
    ("/v1/chat/completions", CHAT | {"data_parallel_rank": 1}, 400, "range"),
    ("/v1/completions", {"prompt": ["a", "b"]}, 400, "several prompts"),
    ("/v1/completions", {"prompt": []}, 400, ""),
    ("/v1/completions", {"prompt": [-1]}, 400, ""),
    ("/v1/completions", {"prompt": list(range(5_000))}, 400, "context length"),
    ("/v1/completions", {}, 400, ""),
    ("/generate", {"text": "x", "sampling_params": [1]}, 400, "sampling_params"),
    ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 0}}, 400, "max_new_tokens"),
    ("/generate", {}, 400, ""),
    ("/tokenize", {}, 400, ""),
    ("/tokenize", b"x", 400, "JSON"),
    ("/detokenize", {"tokens": "x"}, 400, "tokens"),
    ("/detokenize", {"tokens": [10**9]}, 400, "tokens"),
]


async def test_bad_requests_get_openai_errors(client: httpx.AsyncClient) -> None:
    for path, body, status, said in BAD_REQUESTS:
        content = body if isinstance(body, bytes) else json.dumps(body)
        answer = await client.post(path, content=content)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, status), (path, body)
        assert said in error["message"], error
        assert error["type"] == {400: "BadRequestError", 404: "NotFoundError"}[status]


async def test_wrong_methods_and_paths(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/chat/completions")).status_code == 405
    assert (await client.get("/nope")).status_code == 404
    assert (await client.get("/kv_event_sources")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("POST", "/v1/responses", 404, "The simulated engine has no /v1/responses."),
        ("GET", "/generate", 405, "The simulated engine has no GET /generate."),
    ],
)
async def test_what_the_engine_lacks_is_told_in_openai_form(
    client: httpx.AsyncClient, method: str, path: str, status: int, said: str
) -> None:
    answer = await client.request(method, path, json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["message"]) == (status, status, said)
    assert ("allow" in answer.headers) == (status == 405)


async def test_the_reference_lists_the_routes(client: httpx.AsyncClient) -> None:
    page = (REFERENCE / "worker.md").read_text(encoding="utf-8")
    for path in (await client.get("/openapi.json")).json()["paths"]:
        assert f"`{path}`" in page


async def test_long_body_is_refused() -> None:
    async with served(small(max_body_bytes=1_000)) as client:
        answer = await client.post("/v1/chat/completions", json=LONG)
        assert answer.status_code == 413
        assert "1000 bytes" in answer.json()["error"]["message"]


async def test_long_body_is_tokenized_aside() -> None:
    async with served(small(gpu_tokens=1 << 18)) as client:
        body = {"prompt": "many words " * 10_000, "max_tokens": 1}
        answer = (await client.post("/v1/completions", json=body)).json()
        assert answer["usage"]["prompt_tokens"] > 20_000


async def test_request_ids(client: httpx.AsyncClient) -> None:
    named = {"x-request-id": "req-1"}
    answers = await asyncio.gather(
        *(client.post("/v1/chat/completions", json=CHAT, headers=named) for _ in range(3))
    )
    for answer in answers:
        assert answer.json()["id"] == "chatcmpl-req-1"
        assert answer.headers["x-request-id"] == "req-1"
    odd = await client.post(
        "/v1/completions", json={"prompt": "x"}, headers={"x-request-id": "a b"}
    )
    assert odd.json()["id"] == "cmpl-" + odd.headers["x-request-id"]


async def test_client_that_leaves_a_stream_ends_its_request() -> None:
    async with served(small(speed=1.0)) as client:
        body = LONG | {"max_tokens": 1_000, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
        rank = await until(client, num_running=0, is_idle=True)
        assert rank["counters"]["cancelled"] == 1
        assert rank["gpu_capacity"] - rank["gpu_free"] == 16 * len(rank["GPU"])
        assert len(rank["GPU"]) >= 200 // 16


@pytest.mark.parametrize("stream", [True, False])
async def test_client_that_leaves_before_the_first_token_ends_its_request(stream: bool) -> None:
    slow: dict[str, Any] = {"prefill_tokens_per_s": 80.0}
    async with served(small(speed=1.0, engine_model=slow)) as client:
        body = CHAT | {"stream": stream}
        async with asyncio.TaskGroup() as group:
            request = group.create_task(client.post("/v1/chat/completions", json=body))
            await until(client, num_running=1)
            request.cancel()
        rank = await until(client, num_running=0, is_idle=True)
        assert rank["counters"]["cancelled"] == 1
        assert rank["counters"]["finished"] == 0


@pytest.mark.parametrize("field", ["cache_salt", "session_id", "extra_key"])
@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
async def test_a_field_that_is_no_unicode_is_400_and_harms_nobody(
    client: httpx.AsyncClient, field: str, path: str
) -> None:
    body = json.dumps({field: "\ud800", "prompt": [1, 2, 3], "input_ids": [1, 2, 3]})
    answer = await client.post(path, content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert (await client.post(path, json={"prompt": [1], "input_ids": [1]})).status_code == 200


async def test_an_unknown_model_may_have_any_name(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/completions", content='{"model": "\\ud800", "prompt": [1]}')
    assert answer.status_code == 404
