"""Engines that answer at once: the cheapest HTTP peers that a router can stand in front of.

Each speaks just enough of the engine's surface to be discovered, announces one prompt's blocks on GPU,
and answers every POST with a fixed JSON body, or with server-sent events in separate writes. How many, and
the usage that it reports, the field ``user`` of the body says (`Wish`): unlike a header of one's own, all gateways
hand it on. They run in one process of their own, so that their CPU is not the router's. Nothing waits for an
acknowledgement (``TCP_NODELAY``).
"""

import argparse
import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast

import httptools
import uvloop
import zmq

from protocol import BlockStored, EventBatch, LiveMessage, encode_batch, live_frames

BLOCK_SIZE = 16
ANNOUNCEMENT_EVERY_S = 1.0

_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 150 + b'"}}]}\n\n'


def announced_completion(prompt_tokens: int) -> bytes:
    """The usual answer: all but the last block of the announced prompt was cached, as its events say."""
    return completion(prompt_tokens, BLOCK_SIZE * max(prompt_tokens // BLOCK_SIZE - 1, 0))


def completion(prompt_tokens: int, cached_tokens: int) -> bytes:
    """An answer that reports so many tokens, in whole blocks what was cached of them."""
    cached = cached_tokens // BLOCK_SIZE * BLOCK_SIZE
    message = {"role": "assistant", "content": "ok"}
    usage: dict[str, object] = {"prompt_tokens": prompt_tokens, "completion_tokens": 1}
    usage |= {"total_tokens": prompt_tokens + 1}
    answer = {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage | {"prompt_tokens_details": {"cached_tokens": cached}},
    }
    return _reply(json.dumps(answer).encode())


def _reply(body: bytes, content_type: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        content_type,
        len(body),
        body,
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks of the engine.

    Attributes:
        num_chunks: events to stream; 0 asks for one whole answer.
        prompt_tokens, cached_tokens: the usage to report; of 0 prompt tokens the engine's own.
    """

    num_chunks: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def __str__(self) -> str:
        """The form in ``user``."""
        return f"wish-{self.num_chunks}-{self.prompt_tokens}-{self.cached_tokens}-"

    @classmethod
    def found_in(cls, body: bytes) -> "Wish":
        """The one in a body; the default where there is none."""
        start = body.rfind(b'"wish-')
        if start < 0:
            return cls()
        _, chunks, prompt, cached, _ = body[start : start + 60].split(b"-", 4)
        return cls(int(chunks), int(prompt), int(cached))


class StubEngine(asyncio.Protocol):
    """One connection."""

    def __init__(self, pages: dict[bytes, bytes], answer: bytes) -> None:
        self._pages = pages
        self._answer = answer
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._path = b""
        self._body: list[bytes] = []
        self._sender: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._sender is not None:
            self._sender.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        assert self._transport is not None
        wish = Wish.found_in(b"".join(self._body))
        if wish.num_chunks:
            self._sender = asyncio.get_running_loop().create_task(self._stream(wish.num_chunks))
            return
        self._transport.write(self._page(wish))
        if not self._parser.should_keep_alive():
            self._transport.close()

    def _page(self, wish: Wish) -> bytes:
        if wish.prompt_tokens:
            return completion(wish.prompt_tokens, wish.cached_tokens)
        return self._pages.get(self._path, self._answer)

    async def _stream(self, num_chunks: int) -> None:
        """Each event in a write of its own, with a turn of the loop in between."""
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        self._transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(num_chunks):
            self._transport.write(_chunk(_EVENT))
            await asyncio.sleep(0.0005)
        self._transport.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def discovery_pages(model: str, tokenizer: str, events_port: int) -> dict[bytes, bytes]:
    """What a router reads to learn the worker."""
    events = {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": events_port}
    events |= {"topic": "", "block_size": BLOCK_SIZE, "dp_size": 1}
    info: dict[str, object] = {
        "model_path": tokenizer,
        "tokenizer_path": tokenizer,
        "served_model_name": model,
    }
    info |= {"version": "0.5.23", "page_size": BLOCK_SIZE, "dp_size": 1, "kv_events": events}
    card = {"id": model, "object": "model", "root": tokenizer, "max_model_len": 1 << 20}
    models = {"object": "list", "data": [card]}
    not_found = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
    return {
        b"/server_info": _reply(json.dumps(info).encode()),
        b"/get_server_info": _reply(json.dumps(info).encode()),
        b"/v1/models": _reply(json.dumps(models).encode()),
        b"/health": _reply(b""),
        b"/kv_event_sources": not_found,
        b"/version": not_found,
        b"/metrics": not_found,
        b"/is_sleeping": not_found,
        b"/is_paused": not_found,
    }


async def _announce(publisher: zmq.Socket[bytes], tokens: list[int]) -> None:
    """Store the same chain again every second: whoever joins late hears it, and it costs next to nothing."""
    hashes = list(range(1, len(tokens) // BLOCK_SIZE + 1))
    store = BlockStored(hashes, None, tokens[: len(hashes) * BLOCK_SIZE], BLOCK_SIZE, "GPU")
    payload = encode_batch(EventBatch(0.0, [store], 0))
    for seq in count():
        publisher.send_multipart(live_frames(LiveMessage(b"", seq, payload)), zmq.NOBLOCK)
        await asyncio.sleep(ANNOUNCEMENT_EVERY_S)


async def _serve(options: argparse.Namespace, tokens: list[int]) -> None:
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        context = stack.enter_context(zmq.Context())
        for port in options.port:
            publisher = stack.enter_context(context.socket(zmq.PUB))
            events_port = publisher.bind_to_random_port("tcp://127.0.0.1")
            pages = discovery_pages(options.model, options.tokenizer, events_port)
            server = await loop.create_server(
                partial(StubEngine, pages, announced_completion(len(tokens))), "127.0.0.1", port
            )
            await stack.enter_async_context(server)
            group.create_task(server.serve_forever())
            group.create_task(_announce(publisher, tokens))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, action="append", required=True, help="one an engine")
    parser.add_argument("--model", default="stub")
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--tokens", required=True, help="JSON file: ids of the announced prompt")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments, json.loads(Path(arguments.tokens).read_text())))
