"""Engines that answer at once: the cheapest HTTP peers that a router can stand in front of.

Each speaks just enough of the engine's surface to be discovered, announces one prompt's blocks on GPU,
and answers every POST with a fixed JSON body, or, where the request asks for it, with
``x-chunks`` server-sent events in separate writes. They run in one process of their own, so that their
CPU is not the router's.
"""

import argparse
import asyncio
import contextlib
import json
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


def completion(prompt_tokens: int) -> bytes:
    """The one answer: all but the last block of the announced prompt was cached, as its events say."""
    cached = BLOCK_SIZE * max(prompt_tokens // BLOCK_SIZE - 1, 0)
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


class StubEngine(asyncio.Protocol):
    """One connection."""

    def __init__(self, pages: dict[bytes, bytes], answer: bytes) -> None:
        self._pages = pages
        self._answer = answer
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._path = b""
        self._num_chunks = 0
        self._sender: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._sender is not None:
            self._sender.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._num_chunks = b"", 0

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-chunks":
            self._num_chunks = int(value)

    def on_message_complete(self) -> None:
        assert self._transport is not None
        if self._num_chunks:
            self._sender = asyncio.get_running_loop().create_task(self._stream(self._num_chunks))
            return
        page = self._pages.get(self._path)
        self._transport.write(page if page is not None else self._answer)
        if not self._parser.should_keep_alive():
            self._transport.close()

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


async def _announce(socket: zmq.Socket[bytes], tokens: list[int]) -> None:
    """Store the same chain again every second: whoever joins late hears it, and it costs next to nothing."""
    hashes = list(range(1, len(tokens) // BLOCK_SIZE + 1))
    store = BlockStored(hashes, None, tokens[: len(hashes) * BLOCK_SIZE], BLOCK_SIZE, "GPU")
    payload = encode_batch(EventBatch(0.0, [store], 0))
    for seq in count():
        socket.send_multipart(live_frames(LiveMessage(b"", seq, payload)), zmq.NOBLOCK)
        await asyncio.sleep(ANNOUNCEMENT_EVERY_S)


async def _serve(options: argparse.Namespace, tokens: list[int]) -> None:
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        context = stack.enter_context(zmq.Context())
        for port in options.port:
            socket = stack.enter_context(context.socket(zmq.PUB))
            events_port = socket.bind_to_random_port("tcp://127.0.0.1")
            pages = discovery_pages(options.model, options.tokenizer, events_port)
            server = await loop.create_server(
                partial(StubEngine, pages, completion(len(tokens))), "127.0.0.1", port
            )
            await stack.enter_async_context(server)
            group.create_task(server.serve_forever())
            group.create_task(_announce(socket, tokens))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, action="append", required=True, help="one an engine")
    parser.add_argument("--model", default="stub")
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--tokens", required=True, help="JSON file: ids of the announced prompt")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments, json.loads(Path(arguments.tokens).read_text())))
