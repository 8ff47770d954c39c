"""What answers tell the planner: usage, and content as evidence of a prompt."""

import json

import pytest

from scoring import OutcomeKind
from tests.router.front_door import ask, front_door
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    answering,
    chunk,
    response,
    stub_worker,
)


async def test_usage_is_read_from_the_end() -> None:
    usage = {
        "prompt_tokens": 236,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 224},
    }
    data = response(json.dumps({"choices": ["x" * 9000], "usage": usage, "metrics": None}).encode())
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        await ask(door)
        await door.settled()
    ((_, outcome),) = door.brain.outcomes
    assert (outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens) == (236, 224, 4)
    assert door.counters.reported_cached_tokens == 224
    assert door.counters.predicted_cached_tokens == 8
    assert not door.brain.first_bytes  # an answer in one piece has no first token


CONTENT_EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
ERROR_EVENT = b'data: {"error":{"message":"died","code":500}}\n\n'
DONE_EVENT = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("events", "num_first_bytes", "kind"),
    [
        ((ERROR_EVENT + DONE_EVENT,), 0, OutcomeKind.WORKER_ERROR),
        ((ERROR_EVENT, DONE_EVENT), 0, OutcomeKind.WORKER_ERROR),
        ((b": ping\n\n", ERROR_EVENT, DONE_EVENT), 0, OutcomeKind.WORKER_ERROR),
        ((ERROR_EVENT, b": " + b"x" * 9000 + b"\n\n"), 0, OutcomeKind.WORKER_ERROR),
        ((b'event: error\ndata: {"code":1}\n\n',), 0, OutcomeKind.WORKER_ERROR),
        ((b": ping\n\n", b": ping\n\n"), 0, OutcomeKind.WORKER_ERROR),
        ((b": ping\n\n", CONTENT_EVENT, DONE_EVENT), 1, OutcomeKind.COMPLETED),
        ((CONTENT_EVENT, ERROR_EVENT), 1, OutcomeKind.WORKER_ERROR),
    ],
)
async def test_only_content_is_evidence_of_a_prompt(
    events: tuple[bytes, ...], num_first_bytes: int, kind: OutcomeKind
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for event in events:
            await peer.send(chunk(event))
        await peer.send(LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        answer = await ask(door)
        await door.settled()
    assert (answer.is_whole, answer.body) == (True, b"".join(events))
    assert len(door.brain.first_bytes) == num_first_bytes
    assert door.brain.kinds == [kind]


async def test_a_refusal_in_the_shape_of_a_stream_is_no_evidence() -> None:
    head = SSE_HEAD.replace(b"200 OK", b"400 Bad Request")
    data = head + chunk(CONTENT_EVENT) + LAST_CHUNK
    async with stub_worker(answering(data)) as worker, front_door(worker.url) as door:
        assert (await ask(door)).status == 400
        await door.settled()
    assert not door.brain.first_bytes
    assert door.brain.kinds == [OutcomeKind.CLIENT_ERROR]
