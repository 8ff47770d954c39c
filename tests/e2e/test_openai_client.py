"""The official OpenAI client through the router to simulated engines, streaming and not."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from loadgen import FleetSpec, start_fleet

pytestmark = pytest.mark.e2e

MODEL = "kvroute-sim"
SPEC = FleetSpec(2, ("--page-size", "16", "--speed", "50"))
LONG = "the same words again and again " * 20
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": LONG},
    {"role": "user", "content": "hello"},
]


@asynccontextmanager
async def client_of_a_fleet(logs: Path) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    async with (
        start_fleet(SPEC, logs) as fleet,
        openai.AsyncOpenAI(
            base_url=f"{fleet.router_url}/v1", api_key="unused", max_retries=0
        ) as client,
    ):
        yield client


async def test_chats_completions_models_and_errors(tmp_path: Path) -> None:
    async with client_of_a_fleet(tmp_path) as client:
        await whole_and_streamed_chats_agree(client)
        await completions_take_text_and_ids(client)
        await a_repeated_prefix_is_reported_as_cached(client)
        await models_are_listed(client)
        await errors_are_the_clients_own(client)


async def whole_and_streamed_chats_agree(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0
    )
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 8
    assert whole.choices[0].finish_reason == "length"
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens == whole.usage.prompt_tokens


async def completions_take_text_and_ids(client: openai.AsyncOpenAI) -> None:
    for prompt in ("once upon a time", [5, 6, 7, 8]):
        whole = await client.completions.create(model=MODEL, prompt=prompt, max_tokens=4)
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 4
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=4, stream=True
        )
        text = "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])
        assert text == whole.choices[0].text


async def a_repeated_prefix_is_reported_as_cached(client: openai.AsyncOpenAI) -> None:
    """The router sends it where it is cached, so it is cached wherever it went before."""
    answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2)
    assert answer.usage is not None
    details = answer.usage.prompt_tokens_details
    assert details is not None
    assert details.cached_tokens is not None
    assert details.cached_tokens >= 16
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=2
    )
    assert raw.headers["x-kvroute-worker"]
    assert raw.headers["x-request-id"]


async def models_are_listed(client: openai.AsyncOpenAI) -> None:
    (listed,) = [model async for model in client.models.list()]
    assert (listed.id, listed.object) == (MODEL, "model")
    assert listed.created > 0
    assert (await client.models.retrieve(MODEL)) == listed
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")


async def errors_are_the_clients_own(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as unknown:
        await client.chat.completions.create(model="nobody", messages=MESSAGES)
    assert unknown.value.status_code == 404
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=[])
