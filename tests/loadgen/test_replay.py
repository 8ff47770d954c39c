"""Open-loop replay against small servers in this process: times, usage, and every kind of error."""

import asyncio
import threading
from collections.abc import Iterator

import orjson
import pytest
from aiohttp import web

from loadgen import (
    Answer,
    ErrorKind,
    ReplayOptions,
    SynthesisError,
    TimedRequest,
    Usage,
    chat,
    completion,
    free_ports,
    generate,
    replay,
)
from tests.loadgen.serving import Handler, serving


def request(at_s: float = 0.0) -> TimedRequest:
    path, body = completion("m", [1, 2, 3], 4)
    return TimedRequest(at_s, path, body)


def streams(*events: bytes, is_whole: bool = True) -> Handler:
    async def handler(http: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "x-kvroute-worker": "w7"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(http)
        for event in events:
            await response.write(b"data: " + event + b"\n\n")
        if not is_whole and http.transport is not None:
            http.transport.abort()
        return response

    return handler


def answers_with(status: int, body: bytes, content_type: str = "application/json") -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type=content_type)

    return handler


async def one_answer(handler: Handler, timeout_s: float = 5.0) -> Answer:
    async with serving(handler) as url:
        (answer,) = await replay([request()], ReplayOptions(url, timeout_s=timeout_s))
    return answer


ROLE = b'{"choices":[{"delta":{"role":"assistant","content":""}}]}'
TOKEN = b'{"choices":[{"delta":{"content":"hi"}}]}'
USAGE = orjson.dumps(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 30,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 16},
        },
    }
)


async def test_a_streamed_chat() -> None:
    answer = await one_answer(streams(ROLE, TOKEN, TOKEN, USAGE, b"[DONE]"))
    assert (answer.error, answer.status, answer.worker) == (None, 200, "w7")
    assert answer.usage == Usage(30, 16, 2)
    assert len(answer.inter_token_ms) == 1
    assert answer.ttft_ms is not None
    assert answer.total_ms is not None
    assert 0 < answer.ttft_ms <= answer.total_ms


async def test_a_whole_completion() -> None:
    body = b'{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    answer = await one_answer(answers_with(200, body))
    assert answer.usage == Usage(3, None, 1)
    assert answer.ttft_ms == answer.total_ms


async def test_a_generate_stream() -> None:
    event = b'{"text":"a","meta_info":{"prompt_tokens":9,"cached_tokens":8,"completion_tokens":1}}'
    answer = await one_answer(streams(event, b"[DONE]"))
    assert answer.usage == Usage(9, 8, 1)
    assert answer.ttft_ms is not None


ERROR = b'{"error":{"message":"no such model","code":404}}'
FAULTS: list[tuple[Handler, ErrorKind, str]] = [
    (answers_with(404, ERROR), ErrorKind.CLIENT_ERROR, "no such model"),
    (answers_with(400, b"plain words", "text/plain"), ErrorKind.CLIENT_ERROR, "plain words"),
    (answers_with(429, ERROR), ErrorKind.BUSY, "no such model"),
    (answers_with(503, b""), ErrorKind.BUSY, ""),
    (answers_with(500, ERROR), ErrorKind.SERVER_ERROR, "no such model"),
    (answers_with(200, ERROR), ErrorKind.SERVER_ERROR, "no such model"),
    (answers_with(200, b"{"), ErrorKind.BAD_ANSWER, "not JSON"),
    (answers_with(200, b"[]"), ErrorKind.BAD_ANSWER, "not a JSON object"),
    (streams(TOKEN, ERROR, b"[DONE]"), ErrorKind.ERROR_IN_STREAM, "no such model"),
    (streams(TOKEN, b"{"), ErrorKind.BAD_ANSWER, "not JSON"),
    (streams(TOKEN), ErrorKind.BROKEN_OFF, "without [DONE]"),
    (streams(TOKEN, is_whole=False), ErrorKind.BROKEN_OFF, ""),
]


@pytest.mark.parametrize(("handler", "kind", "words"), FAULTS)
async def test_errors_by_kind(handler: Handler, kind: ErrorKind, words: str) -> None:
    answer = await one_answer(handler)
    assert answer.error is kind
    assert words in answer.detail
    assert answer.total_ms is not None


async def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    (answer,) = await replay([request()], ReplayOptions(f"http://127.0.0.1:{port}"))
    assert answer.error is ErrorKind.CONNECT_FAILED


async def test_no_answer_in_time() -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    answer = await one_answer(hang, timeout_s=0.05)
    assert answer.error is ErrorKind.TIMED_OUT


async def test_requests_start_whatever_the_others_do() -> None:
    """The server answers nobody before all three are there: a closed loop would wait for ever."""
    arrived: list[bytes] = []
    all_there = asyncio.Event()

    async def handler(http: web.Request) -> web.StreamResponse:
        arrived.append(await http.read())
        if len(arrived) == 3:
            all_there.set()
        await all_there.wait()
        return web.Response(body=b"{}", content_type="application/json")

    async with serving(handler) as url:
        requests = [request(at_s) for at_s in (0.0, 1.0, 2.0)]
        answers = await replay(requests, ReplayOptions(url, speed=100.0))
    assert [answer.error for answer in answers] == [None] * 3
    assert [answer.at_s for answer in answers] == [0.0, 1.0, 2.0]


async def test_requests_are_made_beside_the_loop_that_times_the_answers() -> None:
    """The second request takes as long to make as the first one's answer takes to be read."""
    is_answered = threading.Event()

    def made() -> Iterator[TimedRequest]:
        yield request()
        assert is_answered.wait(10.0)
        yield request()

    async with serving(answers_with(200, b"{}")) as url:
        answers = await replay(made(), ReplayOptions(url), on_answer=lambda _: is_answered.set())
    assert [answer.error for answer in answers] == [None, None]
    assert answers[1].late_ms > 0


async def test_a_request_that_cannot_be_made_ends_the_replay_with_its_error() -> None:
    def made() -> Iterator[TimedRequest]:
        yield request()
        raise SynthesisError("no words")

    async with serving(answers_with(200, b"{}")) as url:
        with pytest.raises(SynthesisError, match="no words"):
            await replay(made(), ReplayOptions(url))


async def test_at_the_bound_a_request_is_not_sent_and_counted() -> None:
    release = asyncio.Event()
    seen: list[Answer] = []

    async def handler(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response(body=b"{}", content_type="application/json")

    def on_answer(answer: Answer) -> None:
        seen.append(answer)
        release.set()

    async with serving(handler) as url:
        options = ReplayOptions(url, max_in_flight=2)
        answers = await replay([request()] * 3, options, on_answer=on_answer)
    assert [answer.error for answer in answers] == [None, None, ErrorKind.NOT_SENT]
    assert seen[0].error is ErrorKind.NOT_SENT
    assert len(seen) == 3


async def test_bodies_are_what_the_apis_take() -> None:
    bodies: dict[str, dict[str, object]] = {}

    async def handler(http: web.Request) -> web.StreamResponse:
        bodies[http.path] = await http.json()
        return web.Response(body=b"{}", content_type="application/json")

    made = [
        completion("m", [1, 2], 3),
        chat("m", [{"role": "user", "content": "x"}], 4, is_streaming=False),
        generate([5, 6], 7),
    ]
    async with serving(handler) as url:
        await replay([TimedRequest(0.0, *one) for one in made], ReplayOptions(url))
    assert bodies["/v1/completions"]["prompt"] == [1, 2]
    assert bodies["/v1/completions"]["stream_options"] == {"include_usage": True}
    assert bodies["/v1/chat/completions"]["stream"] is False
    assert bodies["/generate"]["input_ids"] == [5, 6]
    assert bodies["/generate"]["sampling_params"] == {"max_new_tokens": 7, "temperature": 0}
