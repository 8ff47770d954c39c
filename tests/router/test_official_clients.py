"""The official clients of OpenAI and Anthropic through a whole router, for what the simulated engine does not serve."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anthropic
import openai
import pytest

from tests.router.stub_engine import StubEngine
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    StubRequest,
    chunk,
    response,
    stub_worker,
)
from tests.router.test_service import Service, service

MODEL = "org/m"
BREAKS = b"break off"
NUM_ENGINES = 3


@dataclass
class Engine:
    """Makes responses, files, embeddings, transcriptions and messages, and keeps what has an id."""

    name: str
    kept: dict[str, dict[str, object]] = field(default_factory=dict)

    async def serve(self, peer: Peer) -> None:
        """Answer one request."""
        request = peer.request
        pages: dict[str, object] = {
            "/v1/models": {"data": [{"id": MODEL, "object": "model"}]},
            "/server_info": {"served_model_name": MODEL},
            "/health": {},
        }
        if request.target in pages:
            await peer.send(response(json.dumps(pages[request.target]).encode()))
        elif request.target.startswith(("/v1/responses", "/v1/files")):
            await self._serve_kept(peer)
        else:
            await self._compute(peer)
        if "close" in map(str.lower, request.values("connection")):
            peer.close()

    async def _serve_kept(self, peer: Peer) -> None:
        request = peer.request
        _, _, kind, *names = request.target.split("/")
        if names:
            await self._ask_kept(peer, names)
            return
        made_id = f"{kind}-{self.name}-{len(self.kept)}"
        asked = body_of(request)
        previous = asked.get("previous_response_id")
        if previous is not None and previous not in self.kept:
            await peer.send(response(b'{"error":{"message":"history lost"}}', status=404))
            return
        made = self.kept[made_id] = (response_object if kind == "responses" else file_object)(
            made_id
        )
        if asked.get("stream"):
            await peer.send(SSE_HEAD)
            for event in ("created", "completed"):
                data = {"type": f"response.{event}", "sequence_number": 0, "response": made}
                await peer.send(chunk(sse(data)))
            await peer.send(LAST_CHUNK)
        else:
            await peer.send(response(json.dumps(made).encode()))

    async def _ask_kept(self, peer: Peer, names: list[str]) -> None:
        made = self.kept.get(names[0])
        if made is None:
            await peer.send(response(b'{"error":{"message":"not found"}}', status=404))
        elif names[1:] == ["content"]:
            await peer.send(response(self.name.encode(), headers=(("Content-Type", "text/plain"),)))
        elif names[1:] == ["input_items"]:
            await peer.send(response(json.dumps({"object": "list", "data": []}).encode()))
        else:
            await peer.send(response(json.dumps(made).encode()))

    async def _compute(self, peer: Peer) -> None:
        request = peer.request
        if request.target == "/v1/embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            made: object = {"object": "list", "model": MODEL, "data": data, "usage": usage}
        elif request.target == "/v1/audio/transcriptions":
            made = {"text": f"{len(request.body)} bytes"}
        elif body_of(request).get("stream"):
            await stream_message(peer)
            return
        else:
            made = MESSAGE
        await peer.send(response(json.dumps(made).encode()))


MESSAGE: dict[str, object] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


EVENTS: tuple[dict[str, object], ...] = (
    {"type": "message_start", "message": MESSAGE | {"content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "안녕"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 1},
    },
    {"type": "message_stop"},
)


async def stream_message(peer: Peer) -> None:
    await peer.send(SSE_HEAD)
    for event in EVENTS:
        if event["type"] == "content_block_stop" and BREAKS in peer.request.body:
            peer.close()
            return
        await peer.send(chunk(sse(event)))
    await peer.send(LAST_CHUNK)


def body_of(request: StubRequest) -> dict[str, object]:
    body: dict[str, object] = json.loads(request.body) if request.body.startswith(b"{") else {}
    return body


def response_object(made_id: str) -> dict[str, object]:
    text = {"type": "output_text", "text": "hello", "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return {
        "id": made_id,
        "object": "response",
        "created_at": 1,
        "model": MODEL,
        "status": "completed",
        "output": [item | {"content": [text]}],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


def file_object(made_id: str) -> dict[str, object]:
    return {
        "id": made_id,
        "object": "file",
        "bytes": 5,
        "created_at": 1,
        "filename": "a.jsonl",
        "purpose": "batch",
        "status": "processed",
    }


def sse(data: dict[str, object]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (str(data["type"]).encode(), json.dumps(data).encode())


@asynccontextmanager
async def routed() -> AsyncIterator[Service]:
    """A router before engines that each keep their own."""
    async with AsyncExitStack() as stack:
        engines = [
            StubEngine(await stack.enter_async_context(stub_worker(Engine(f"e{index}").serve)))
            for index in range(NUM_ENGINES)
        ]
        router = await stack.enter_async_context(service(*engines, policy="round_robin"))
        await router.ready()
        yield router


@asynccontextmanager
async def openai_client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with routed() as router:
        url = f"{router.data.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
            yield client


async def test_responses_are_made_read_continued_cancelled_and_deleted() -> None:
    async with openai_client() as client:
        makers = set()
        for _ in range(NUM_ENGINES):
            made = await client.responses.create(model=MODEL, input="hi")
            assert made.output_text == "hello"
            makers.add(made.id.split("-")[1])
            for _ in range(NUM_ENGINES):
                assert (await client.responses.retrieve(made.id)).id == made.id
            assert [item async for item in await client.responses.input_items.list(made.id)] == []
            assert (await client.responses.cancel(made.id)).id == made.id
            made = await client.responses.create(
                model=MODEL, input="more", previous_response_id=made.id
            )
            await client.responses.delete(made.id)
        assert len(makers) > 1
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve("resp_unknown")


async def test_streamed_responses_can_be_gone_on_from() -> None:
    async with openai_client() as client:
        previous: str | None = None
        for _ in range(2 * NUM_ENGINES):
            stream = await client.responses.create(
                model=MODEL,
                input="hi",
                stream=True,
                previous_response_id=previous or openai.omit,
            )
            events = [event async for event in stream]
            assert [event.type for event in events] == ["response.created", "response.completed"]
            assert events[0].type == "response.created"
            previous = events[0].response.id
        assert previous is not None
        assert (await client.responses.retrieve(previous)).id == previous


async def test_files_are_read_where_they_were_put() -> None:
    async with openai_client() as client:
        for _ in range(NUM_ENGINES):
            made = await client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch")
            for _ in range(2):
                assert (await client.files.retrieve(made.id)).id == made.id
                content = await client.files.content(made.id)
                assert content.text == made.id.split("-")[1]


async def test_embeddings_transcriptions_and_models() -> None:
    async with openai_client() as client:
        embeddings = await client.embeddings.create(
            model=MODEL, input="hi", encoding_format="float"
        )
        assert embeddings.data[0].embedding == [0.5, 0.25]
        audio = b"\x00\xff" * 50_000
        heard = await client.audio.transcriptions.create(model=MODEL, file=("a.wav", audio))
        assert int(heard.text.split()[0]) > len(audio)
        for call in (
            client.embeddings.create(model="nobody", input="hi"),
            client.audio.transcriptions.create(model="nobody", file=("a.wav", audio)),
        ):
            with pytest.raises(openai.NotFoundError) as unknown:
                await call
            assert unknown.value.code == "model_not_found"
        (listed,) = [model async for model in client.models.list()]
        assert (listed.id, listed.object, listed.owned_by) == (MODEL, "model", "sglang")
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("org/nobody")


async def test_messages_of_anthropics_client() -> None:
    async with (
        routed() as router,
        anthropic.AsyncAnthropic(
            base_url=str(router.data.base_url), api_key="unused", max_retries=0
        ) as client,
    ):
        whole = await client.messages.create(
            model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "hi"}]
        )
        assert whole.content[0].type == "text"
        assert whole.content[0].text == "hello"
        async with client.messages.stream(
            model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            assert "".join([text async for text in stream.text_stream]) == "안녕"
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(
                model="nobody", max_tokens=5, messages=[{"role": "user", "content": "hi"}]
            )


async def test_anthropics_client_is_told_why_a_message_ends_early() -> None:
    async with (
        routed() as router,
        anthropic.AsyncAnthropic(
            base_url=str(router.data.base_url), api_key="unused", max_retries=0
        ) as client,
    ):
        with pytest.raises(anthropic.APIError, match="the worker broke off"):
            async with client.messages.stream(
                model=MODEL, max_tokens=5, messages=[{"role": "user", "content": BREAKS.decode()}]
            ) as stream:
                await stream.until_done()
