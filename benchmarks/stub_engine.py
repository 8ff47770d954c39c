"""An engine that answers at once: the cheapest HTTP peer that a router can stand in front of.

Speaks just enough of the engine's surface to be discovered, answers every POST with a fixed JSON body,
or, where the request streams, with ``x-chunks`` server-sent events in separate writes. It runs as a
process of its own, so that its CPU is not the router's.
"""

import argparse
import asyncio
import json
from typing import cast

import httptools
import uvloop

_COMPLETION = json.dumps(
    {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ok"},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 500,
            "completion_tokens": 1,
            "total_tokens": 501,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }
).encode()
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 150 + b'"}}]}\n\n'


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

    def __init__(self, pages: dict[bytes, bytes]) -> None:
        self._pages = pages
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
        self._transport.write(page if page is not None else _reply(_COMPLETION))
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


def discovery_pages(model: str, tokenizer: str) -> dict[bytes, bytes]:
    """What a router reads to learn the worker."""
    info: dict[str, object] = {
        "model_path": tokenizer,
        "tokenizer_path": tokenizer,
        "served_model_name": model,
    }
    info |= {"version": "0.5.23", "page_size": 64, "dp_size": 1}
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


async def _serve(port: int, model: str, tokenizer: str) -> None:
    pages = discovery_pages(model, tokenizer)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: StubEngine(pages), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="stub")
    parser.add_argument("--tokenizer", default="")
    options = parser.parse_args()
    uvloop.run(_serve(options.port, options.model, options.tokenizer))
