"""Prompts are keyed by the tokens that engines make of them, whole and in order, and by nothing else."""

import json
from typing import Any

import pytest
import tokenizers

from prompt import bundled_model_dir
from protocol import BlockStored, EventBatch, Rank, WorkerId
from tests.router.brains import TestFleet, fleet
from tests.router.control_port import control
from tests.router.front_door import ask, bundled_model, front_door
from tests.router.stub_engine import answer_chat
from tests.router.stub_worker import stub_worker

SIZE = 16
BOS = 0
TOKENIZER = tokenizers.Tokenizer.from_file(str(bundled_model_dir() / "tokenizer.json"))
SYSTEM, ASKED, SAID = (
    "Answer briefly. " * 6,
    "What does the router weigh? " * 5,
    "What is held. " * 8,
)
CHAT = {
    "messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": SAID},
    ]
}
RENDERED = (
    f"<|begin|><|turn|>system\n{SYSTEM}<|end_turn|>\n<|turn|>user\n{ASKED}<|end_turn|>\n"
    f"<|turn|>assistant\n{SAID}<|end_turn|>\n<|turn|>assistant\n"
)
TEXT = "A plain text that is completed, and goes on for some while. " * 6


def ids_of(text: str) -> list[int]:
    """As an engine encodes it, nothing put in front."""
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids


def serving(one: TestFleet, *workers: str) -> None:
    """Workers of one model whose tokenizer is here."""
    for worker in workers:
        one.learn(worker, block_size=SIZE, tokenizer=str(bundled_model_dir()))
    for spec in one.registry.specs():
        one.brains.shelf.put(spec, one.brains.shelf.load(spec))
    one.brains.shelf.keep(one.registry.specs())


def hold(one: TestFleet, worker: str, ids: list[int], first_hash: int = 1) -> int:
    """The worker announces all whole blocks; their number."""
    count = len(ids) // SIZE
    hashes = list(range(first_hash, first_hash + count))
    stored = BlockStored(hashes, None, ids[: count * SIZE], SIZE, "GPU")
    one.brains.index.apply(Rank(WorkerId(worker)), EventBatch(0.0, [stored]), 0.0)
    return count


async def blocks(one: TestFleet, body: dict[str, Any], api: str | None = None) -> dict[str, int]:
    """What each worker is credited with."""
    query = "" if api is None else f"?api={api}"
    async with control(one) as (client, _):
        answer = await client.post(f"/debug/route{query}", json={"model": "m", **body})
        candidates = answer.json()["candidates"]
    return {one["worker"]: one["gpu_blocks"] for one in candidates}


@pytest.mark.parametrize(
    ("body", "api", "ids"),
    [
        (CHAT, None, ids_of(RENDERED)),
        ({"system": SYSTEM, "messages": CHAT["messages"][1:]}, "messages", ids_of(RENDERED)),
        ({"input": CHAT["messages"]}, "responses", ids_of(RENDERED)),
        ({"prompt": TEXT}, None, [BOS, *ids_of(TEXT)]),
        ({"prompt": f"<|begin|>{TEXT}"}, None, [BOS, BOS, *ids_of(TEXT)]),  # as engines do
        ({"prompt": TEXT, "add_special_tokens": False}, None, ids_of(TEXT)),
        ({"text": TEXT}, None, [BOS, *ids_of(TEXT)]),
    ],
)
async def test_every_complete_block_of_a_prompt_is_credited(
    body: dict[str, Any], api: str | None, ids: list[int]
) -> None:
    with fleet() as one:
        serving(one, "w0", "w1")
        count = hold(one, "w1", ids)
        assert count > 5
        assert await blocks(one, body, api) == {"w0": 0, "w1": count}


async def test_the_words_alone_are_not_the_prompt() -> None:
    with fleet() as one:
        serving(one, "w0")
        hold(one, "w0", ids_of(SYSTEM + ASKED + SAID))
        hold(one, "w0", ids_of(TEXT), 100)
        assert await blocks(one, CHAT) == {"w0": 0}
        assert await blocks(one, {"prompt": TEXT}) == {"w0": 0}


async def test_a_chat_that_cannot_be_rendered_goes_by_load_and_is_counted() -> None:
    broken = {"messages": [{"role": "user", "content": ["a", 7]}]}
    async with stub_worker(answer_chat) as worker, front_door(worker.url) as door:
        door.fleet.model = bundled_model()
        body = json.dumps({"model": "m", **broken}).encode()
        assert (await ask(door, body=body)).status == 200
        assert door.counters.unrouted == {"not_a_prompt": 1}
        assert door.brain.requests[0].tokens is None
    assert worker.requests[0].body == body


IDS = [1234, *range(100, 150)]
LIKE = [12345, *range(100, 150)]


@pytest.mark.parametrize(
    "prompt", [IDS, [IDS], [IDS, LIKE], ["a", "b"], [TEXT], [[1], [2], [3]], [IDS, "a"]]
)
@pytest.mark.parametrize("has_tokenizer", [True, False])
async def test_prompts_of_every_form_reach_a_worker_unchanged(
    prompt: list[Any], *, has_tokenizer: bool
) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}, indent=1).encode()
    async with stub_worker(answer_chat) as worker, front_door(worker.url) as door:
        if has_tokenizer:
            door.fleet.model = bundled_model()
        assert (await ask(door, "POST", "/v1/completions", body=body)).status == 200
        is_batch = len(prompt) > 1 and not isinstance(prompt[0], int)
        assert door.counters.unrouted["batched_prompt"] == is_batch
    assert worker.requests[0].body == body


async def test_ids_match_by_whole_tokens_and_not_by_number_or_digits() -> None:
    with fleet() as one:
        serving(one, "w0", "w1")
        count = hold(one, "w1", IDS)
        assert count == 3
        for form in ([IDS], IDS, [*IDS, 7]):
            assert await blocks(one, {"prompt": form}) == {"w0": 0, "w1": count}
        others = (LIKE, [7, *IDS], list(range(2000, 2000 + len(IDS))), [1, 234, *IDS[1:]])
        for other in others:
            assert await blocks(one, {"prompt": other}) == {"w0": 0, "w1": 0}
            assert await blocks(one, {"input_ids": other}) == {"w0": 0, "w1": 0}
        assert await blocks(one, {"prompt": [*IDS[:32], *LIKE[32:40], *LIKE[:8]]}) == {
            "w0": 0,
            "w1": 2,
        }


async def test_a_batch_is_placed_by_load() -> None:
    with fleet() as one:
        serving(one, "w0", "w1")
        hold(one, "w1", IDS)
        async with control(one) as (client, _):
            for prompt in ([IDS, IDS], [TEXT, TEXT]):
                answer = await client.post("/debug/route", json={"model": "m", "prompt": prompt})
                decision = answer.json()
                assert decision["unrouted_by"] == "batched_prompt"
                assert decision["prompt_tokens"] is None
