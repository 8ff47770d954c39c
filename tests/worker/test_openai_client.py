"""The official client works against a worker."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.worker.served import served, small


@pytest.fixture
async def openai_client() -> AsyncIterator[AsyncOpenAI]:
    async with (
        served(small()) as client,
        AsyncOpenAI(
            base_url=f"{client.base_url}/v1", api_key="none", max_retries=0
        ) as openai_client,
    ):
        yield openai_client


async def test_models(openai_client: AsyncOpenAI) -> None:
    assert [model.id async for model in openai_client.models.list()] == ["kvroute-sim"]


async def test_chat(openai_client: AsyncOpenAI) -> None:
    answer = await openai_client.chat.completions.create(
        model="kvroute-sim",
        messages=[{"role": "user", "content": "Tell me about the sea."}],
        max_tokens=6,
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_chat_stream(openai_client: AsyncOpenAI) -> None:
    stream = await openai_client.chat.completions.create(
        model="kvroute-sim",
        messages=[{"role": "user", "content": "Tell me about the sea."}],
        max_completion_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6


async def test_completion(openai_client: AsyncOpenAI) -> None:
    answer = await openai_client.completions.create(
        model="kvroute-sim", prompt=[1, 2, 3], max_tokens=4
    )
    assert len(answer.choices[0].text.split()) == 4
    stream = await openai_client.completions.create(
        model="kvroute-sim", prompt=[1, 2, 3], max_tokens=4, stream=True
    )
    assert "".join([c.choices[0].text async for c in stream]) == answer.choices[0].text


async def test_errors(openai_client: AsyncOpenAI) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        await openai_client.completions.create(model="nope", prompt="x")
    with pytest.raises(BadRequestError, match="context length"):
        await openai_client.completions.create(model="kvroute-sim", prompt="x", max_tokens=10_000)
