"""Time per output token: of streams whose engine reports how many there were, from the first content to the end."""

import asyncio

import pytest

from tests.router.front_door import ask, front_door
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk, response, stub_worker

CHAT = b'{"model":"m","messages":[],"stream":true}'


def usage(output_tokens: object) -> bytes:
    return b'data: {"usage":{"prompt_tokens":9,"completion_tokens":%s}}\n\n' % (
        str(output_tokens).encode()
    )


@pytest.mark.parametrize(
    ("output_tokens", "num_counted"), [(11, 1), (2, 1), (1, 0), (0, 0), ("null", 0)]
)
async def test_a_stream_is_counted_once_where_there_are_two_tokens(
    output_tokens: object, num_counted: int
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b'data: {"choices":[{}]}\n\n'))
        await asyncio.sleep(0.02)
        await peer.send(chunk(usage(output_tokens)) + LAST_CHUNK)

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        await ask(door, body=CHAT)
        await door.settled()
    counted = door.counters.token_s
    assert sum(counted.counts) == num_counted
    if num_counted and isinstance(output_tokens, int):
        assert counted.total >= 0.015 / (output_tokens - 1)


async def test_an_answer_that_is_no_stream_or_breaks_off_is_not_counted() -> None:
    whole = b'{"usage":{"prompt_tokens":9,"completion_tokens":50}}'

    async def script(peer: Peer) -> None:
        if b"stream" not in peer.request.body:
            await peer.send(response(whole))
            return
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n") + chunk(usage(50)))
        peer.close()

    async with stub_worker(script) as worker, front_door(worker.url) as door:
        await ask(door)
        await ask(door, body=CHAT)
        await door.settled()
    assert sum(door.counters.token_s.counts) == 0
    assert sum(door.counters.ttft_s.counts) == 2
