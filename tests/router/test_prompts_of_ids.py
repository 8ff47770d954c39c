"""Prompts that are token ids already, of models whose tokenizer is not known here."""

import json
from typing import Any

import pytest

from protocol import BlockStored, EventBatch, Rank, WorkerId
from tests.router.brains import fleet
from tests.router.control_port import control
from tests.router.front_door import ask, front_door
from tests.router.stub_engine import answer_chat
from tests.router.stub_worker import stub_worker

IDS = list(range(100, 113))
HELD = BlockStored([1, 2, 3], None, IDS[:12], 4, "GPU")


@pytest.mark.parametrize(
    "body", [{"prompt": IDS}, {"prompt": [IDS]}, {"input_ids": IDS}, {"input_ids": [IDS]}]
)
async def test_they_are_matched_without_a_tokenizer(body: dict[str, Any]) -> None:
    with fleet() as one:
        one.learn("w0", block_size=4)
        one.learn("w1", block_size=4)
        one.brains.index.apply(Rank(WorkerId("w1")), EventBatch(0.0, [HELD]), 0.0)
        async with control(one) as (client, _):
            decision = (await client.post("/debug/route", json={"model": "m", **body})).json()
    assert (decision["prompt_tokens"], decision["unrouted_by"]) == (13, None)
    assert decision["chosen"]["worker"] == "w1"
    assert [one["gpu_blocks"] for one in decision["candidates"]] == [3, 0]


@pytest.mark.parametrize(
    ("prompt", "unrouted"),
    [([1, 2], {}), ("text", {"no_tokenizer": 1}), ([[1], [2]], {"batched_prompt": 1})],
)
async def test_they_are_not_counted_as_unrouted(prompt: object, unrouted: dict[str, int]) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    async with stub_worker(answer_chat) as worker, front_door(worker.url) as door:
        assert (await ask(door, "POST", "/v1/completions", body=body)).status == 200
    assert door.counters.unrouted == unrouted
    assert worker.requests[0].body == body
