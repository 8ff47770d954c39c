"""Engines that are asked for tokens: what is kept, who is left alone, what bounds it."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from prompt import Api, AskedKind, NoTokensError, NoTokensReason, RequestView, view_request
from protocol import pack_tokens
from router.counters import DataCounters
from router.engine_tokens import AskedEngine, AskedModel, EngineTokens
from router.headers import read_request_head
from router.hops import Hops
from router.prompt_reader import PromptReader
from router.tokenize_route import TokenizeError, Told, open_tokenize_route
from tests.router.stub_worker import Peer, response, stub_worker

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


class Engines:
    """Engines by URL: each makes as many tokens as the body has bytes, fails, or does what it is told to."""

    def __init__(self, *urls: str, takes_chats: bool = True) -> None:
        self.model = AskedModel(
            "m", [AskedEngine(url, takes_chats) for url in urls], AskedKind.VLLM
        )
        self.failing: dict[str, TokenizeError] = {}
        self.gone: set[str] = set()
        self.calls: list[str] = []
        self.wait: Callable[[], Awaitable[None]] | None = None

    def asked(self, name: str | None) -> AskedModel | None:
        return self.model if name == "m" else None

    async def tokenize(self, url: str, body: bytes, timeout_s: float) -> Told:
        self.calls.append(url)
        if self.wait is not None:
            await self.wait()
        if url in self.failing:
            raise self.failing[url]
        return Told(None if url in self.gone else pack_tokens(list(body)))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def asking(engines: Engines, **options: Any) -> tuple[EngineTokens, DataCounters, Clock]:
    counters, clock = DataCounters(), Clock()
    return EngineTokens(engines, engines, counters, 0.5, clock, **options), counters, clock


def view(text: str = "hi", model: str = "m") -> RequestView:
    return view_request(Api.COMPLETIONS, orjson.dumps({"model": model, "prompt": text}))


async def reason(tokens: EngineTokens, request: RequestView) -> NoTokensReason | None:
    try:
        await tokens.prompt_tokens(request)
    except NoTokensError as error:
        return error.reason
    finally:
        tokens.check()
    return None


async def test_a_prompt_is_asked_once_and_kept() -> None:
    engines = Engines("a")
    tokens, counters, _ = asking(engines)
    first = await tokens.prompt_tokens(view())
    assert await tokens.prompt_tokens(view()) == first
    assert first.tokens != (await tokens.prompt_tokens(view("other"))).tokens
    assert len(engines.calls) == 2
    assert counters.asked == {"asked": 2, "kept": 1}


async def test_engines_are_asked_by_turns() -> None:
    engines = Engines("a", "b")
    tokens, _, _ = asking(engines)
    for number in range(6):
        await tokens.prompt_tokens(view(str(number)))
    assert sorted(engines.calls) == ["a"] * 3 + ["b"] * 3


async def test_a_failed_engine_is_left_alone_for_longer_each_time() -> None:
    engines = Engines("a", "b")
    engines.failing["a"] = TokenizeError("down")
    tokens, counters, clock = asking(engines)
    outcomes = [await reason(tokens, view(str(number))) for number in range(20)]
    assert outcomes.count(NoTokensReason.NOT_TOKENIZED) == 1
    assert engines.calls.count("a") == 1
    clock.now = 5.0
    for number in range(20, 30):
        await reason(tokens, view(str(number)))
    assert engines.calls.count("a") == 2
    clock.now = 10.0  # the pause has doubled
    for number in range(30, 40):
        await reason(tokens, view(str(number)))
    assert engines.calls.count("a") == 2
    del engines.failing["a"]
    clock.now = 400.0
    for number in range(40, 50):
        assert await reason(tokens, view(str(number))) is None
    assert engines.calls.count("a") == 7
    assert counters.asked["failed"] == 2


async def test_where_all_have_failed_requests_go_by_load_at_once() -> None:
    engines = Engines("a")
    engines.gone.add("a")
    tokens, counters, _ = asking(engines)
    for number in range(5):
        assert await reason(tokens, view(str(number))) is NoTokensReason.NOT_TOKENIZED
    assert len(engines.calls) == 1
    assert counters.asked == {"asked": 5, "failed": 5}


async def test_a_refused_prompt_is_no_fault_of_the_engine() -> None:
    engines = Engines("a")
    engines.failing["a"] = TokenizeError("it answers 400", is_refusal=True)
    tokens, _, _ = asking(engines)
    for number in range(3):
        assert await reason(tokens, view(str(number))) is NoTokensReason.NOT_TOKENIZED
    assert len(engines.calls) == 3


async def test_who_cannot_be_asked() -> None:
    engines = Engines("a", takes_chats=False)
    tokens, counters, _ = asking(engines)
    assert await reason(tokens, view(model="other")) is NoTokensReason.NO_TOKENIZER
    chat = view_request(Api.CHAT, orjson.dumps({"model": "m", **CHAT}))
    assert await reason(tokens, chat) is NoTokensReason.NO_TOKENIZER
    assert not counters.asked


async def test_what_is_kept_is_bounded() -> None:
    engines = Engines("a")
    tokens, counters, _ = asking(engines, max_kept_bytes=2_000)
    for number in range(10, 50):
        assert await reason(tokens, view(str(number))) is None
    await tokens.prompt_tokens(view("49"))
    assert counters.asked["kept"] == 1
    await tokens.prompt_tokens(view("10"))
    assert counters.asked["kept"] == 1
    tokens.check()


async def test_no_more_than_some_are_asked_at_once() -> None:
    engines, are_asked, go = Engines("a"), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        if len(engines.calls) == 64:
            are_asked.set()
        await go.wait()

    engines.wait = wait
    tokens, _, _ = asking(engines)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reason(tokens, view(str(number)))) for number in range(70)]
        await are_asked.wait()
        go.set()
    outcomes = [task.result() for task in tasks]
    assert outcomes.count(None) == 64
    assert outcomes.count(NoTokensReason.NOT_TOKENIZED) == 6


@pytest.mark.parametrize("num_chars", [10, 50_000])
async def test_the_reader_asks_where_nothing_else_helps(num_chars: int) -> None:
    engines = Engines("a")
    tokens, counters, _ = asking(engines)
    with ThreadPoolExecutor(1) as executor:
        reader = PromptReader(NoModels(), executor, counters, tokens)
        body = orjson.dumps({"model": "m", "prompt": "a" * num_chars})
        read = await reader.read(Api.COMPLETIONS, HEAD, body)
        assert read.tokens is not None
        assert (read.unrouted, set(read.timing_us)) == (None, {"tokenize"})
        engines.gone.add("a")
        read = await reader.read(Api.COMPLETIONS, HEAD, orjson.dumps({"model": "m", "prompt": "b"}))
        assert (read.tokens, read.unrouted) == (None, "not_tokenized")
        read = await reader.read(Api.COMPLETIONS, HEAD, b'{"model": "m", "prompt": [1]}')
        assert (read.tokens, len(engines.calls)) == (pack_tokens([1]), 2)
    assert counters.unrouted == {"not_tokenized": 1}


class NoModels:
    def prompt_model(self, name: str | None) -> None:
        return None


HEAD = read_request_head([(b"content-type", b"application/json")])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response(b'{"count": 2, "tokens": [1, 2]}'), [1, 2]),
        (response(b'{"tokens": []}'), []),
        (response(b"", status=404), None),
        (response(b"", status=405), None),
        (response(b"", status=500), "answers 500"),
        (response(b"", status=400), "answers 400"),
        (response(b"{}"), "no token ids"),
        (response(b'{"tokens": [[1], [2]]}'), "no token ids"),
        (response(b'{"tokens": [-1]}'), "no token ids"),
        (response(b"nonsense"), "no token ids"),
        (b"nonsense\r\n\r\n", "HTTP"),
        (None, "within"),
    ],
)
async def test_the_route(answer: bytes | None, expected: list[int] | str | None) -> None:
    async def serve(peer: Peer) -> None:
        if answer is None:
            await peer.gone()
        else:
            await peer.send(answer)

    async with stub_worker(serve) as worker, open_tokenize_route("t", Hops("here"), 1.0) as route:
        if isinstance(expected, str):
            with pytest.raises(TokenizeError, match=expected) as caught:
                await route.tokenize(worker.url, b"{}", 0.2)
            assert caught.value.is_refusal is ("400" in expected)
            assert caught.value.is_broken is ("500" in expected)
        else:
            told = await route.tokenize(worker.url, b'{"prompt": "a"}', 5.0)
            assert told.tokens == (None if expected is None else pack_tokens(expected))
            (request,) = worker.requests
            assert (request.method, request.target) == ("POST", "/tokenize")
            assert request.body == b'{"prompt": "a"}'
            assert request.values("authorization") == ["Bearer t"]
