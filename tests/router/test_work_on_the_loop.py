"""What is done on the event loop is short, whatever clients send and however many leave: told by the thread that does it and by the
number of calls in a turn of the loop, not by a clock."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from prompt import Api, PromptTokens, RequestView, view_request
from protocol import pack_tokens
from router.client_keys import ClientKeys
from router.counters import DataCounters
from router.engine_tokens import EngineTokens
from router.headers import read_request_head
from router.hops import Hops
from router.prompt_reader import PromptReader
from router.shelf import PromptShelf
from router.short_work import SHORT_BYTES
from router.tokenize_route import open_tokenize_route
from tests.router.front_door import WireClient, ask, connect, front_door
from tests.router.stub_engine import stub_engine
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    answering,
    chunk,
    response,
    stub_worker,
)
from tests.router.test_client_keys import entry
from tests.router.test_engine_tokens import Engines
from tests.router.test_service import BODY, service
from tests.router.turns import counted_turns, threads_of

OK = answering(response(b"{}"))
HEAD = read_request_head([(b"content-type", b"application/json")])
LONG = "x" * (4 * SHORT_BYTES)
SIZES = pytest.mark.parametrize(("text", "is_off_loop"), [("hi", False), (LONG, True)])


class Tokenizer:
    """Of whatever model."""

    def prompt_tokens(self, view: RequestView) -> PromptTokens:
        """One token."""
        return PromptTokens(pack_tokens([1]), 0, 0)


def chat(text: str, **more: str) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": "m", "messages": [message], **more}).encode()


def are_off_loop(threads: list[int]) -> bool:
    """Was it called, and never on this thread?"""
    assert threads, "it was not called"
    return threading.get_ident() not in threads


@SIZES
async def test_long_prompts_are_read_and_tokenized_in_a_thread(
    text: str, is_off_loop: bool
) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        door.fleet.model = Tokenizer()  # type: ignore[assignment]
        with threads_of("prompt_tokens") as threads:
            assert (await ask(door, body=chat(text))).status == 200
        assert door.brain.requests[0].tokens is not None
    assert are_off_loop(threads) is is_off_loop


@SIZES
async def test_so_are_stand_ins_for_tokens_made(text: str, is_off_loop: bool) -> None:
    with ThreadPoolExecutor(1) as executor, threads_of("approximate_tokens") as threads:
        reader = PromptReader(PromptShelf({}), executor, DataCounters(), approximates=True)
        assert (await reader.read(Api.CHAT, HEAD, chat(text))).is_approximate
    assert are_off_loop(threads) is is_off_loop


@SIZES
async def test_so_is_the_salt_of_a_tenant_put_into_them(text: str, is_off_loop: bool) -> None:
    keys = ClientKeys([entry("a", cache_salt="a salt of 20 letters")])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        with threads_of("applied") as threads:
            body = chat(text, cache_salt="own")
            assert (await ask(door, headers=[("x-api-key", "key-a")], body=body)).status == 200
    assert are_off_loop(threads) is is_off_loop


@SIZES
@pytest.mark.parametrize("work", ["tokenize_body", "pack_tokens"])
async def test_so_is_what_an_engine_is_asked_and_answers(
    work: str, text: str, is_off_loop: bool
) -> None:
    async def tokenize(peer: Peer) -> None:
        await peer.send(response(orjson.dumps({"tokens": list(peer.request.body)})))

    body = chat(text)
    async with stub_worker(tokenize) as worker, open_tokenize_route(None, Hops("a"), 1.0) as route:
        tokens = EngineTokens(Engines(worker.url), route, DataCounters(), 5.0)
        with threads_of(work) as threads:
            await tokens.prompt_tokens(view_request(Api.CHAT, body), len(body))
    assert are_off_loop(threads) is is_off_loop


async def test_a_tokenizer_that_cannot_be_had_is_looked_for_when_its_engine_is_learned(
    tmp_path: Path,
) -> None:
    """And for no request, however many come; they go by load meanwhile."""
    async with (
        stub_engine(script=OK, tokenizer=str(tmp_path / "not-mounted")) as engine,
        service(engine, prompts={"asks_engines": False, "approximates": False}) as router,
    ):
        await router.ready()
        with threads_of("_places") as loads:
            for number in range(20):
                body = {**BODY, "messages": [{"role": "user", "content": f"{number} {LONG}"}]}
                answer = await router.data.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200
        metrics = (await router.control.get("/metrics")).text
        assert 'kvroute_unrouted_total{reason="no_tokenizer"} 20.0' in metrics
        assert len(loads) <= 1


async def longest_turn(num_clients: int, num_bytes: int) -> int:
    """Calls in the longest turn while so many clients leave in the middle of streams that have so many bytes to go, and another
    client's stream goes on."""
    go = asyncio.Queue[None]()

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        if peer.request.target == "/steady":
            while True:
                await go.get()
                await peer.send(chunk(b"data: 1\n\n"))
        for _ in range(num_bytes // 65536):
            peer.writer.write(chunk(b"x" * 65536))
        await peer.send(LAST_CHUNK)

    async with (
        stub_worker(script) as worker,
        front_door(worker.url) as door,
        AsyncExitStack() as stack,
    ):

        async def streaming(target: str) -> WireClient:
            client = await stack.enter_async_context(connect(door.port))
            await client.send("POST", target, body=b"{}")
            assert (await client.head()).status == 200
            return client

        steady = await streaming("/steady")
        leaving = [await streaming("/big") for _ in range(num_clients)]
        for _ in range(50):
            await asyncio.sleep(0)
        with counted_turns() as turns:
            for client in leaving:
                client.reset()
            go.put_nowait(None)
            assert await steady.chunk() == b"data: 1\n\n"
            while door.counters.in_flight > 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
            go.put_nowait(None)
            assert await steady.chunk() == b"data: 1\n\n"
        steady.reset()
        await door.settled()
    return turns.longest


async def test_clients_that_leave_big_streams_cost_what_those_of_small_ones_do() -> None:
    small = await longest_turn(30, 1 << 17)
    assert await longest_turn(30, 5 << 20) < 2 * small + 500


def test_a_head_of_fields_that_are_read_is_gone_through_once() -> None:
    """Were each of them joined to those before it, 64 KiB of them would take as long as thousands of heads."""
    raw = [(b"connection", b"%x" % number) for number in range(4000)] + [(b"via", b"x")] * 4000
    with threads_of("_listed_names") as calls:
        head = read_request_head([*raw, (b"7f", b"named"), (b"x", b"kept")])
    assert (len(calls), len(head.via.split(b","))) == (1, 4000)
    assert head.forwarded[-1] == (b"x", b"kept")
