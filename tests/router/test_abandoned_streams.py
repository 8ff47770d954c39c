"""Streams that their clients abandon: what they took is given back, to the last connection and permit."""

import asyncio
from hashlib import sha256

import pytest

from tests.router.front_door import WireClient
from tests.router.stub_engine import answer_chat, stub_engine
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk
from tests.router.whole_router import BODY, CHAT, total, whole_router

EVENT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
STREAMING = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
SECRET = "a key of one at a time"


async def open_stream(port: int, *headers: tuple[str, str]) -> WireClient:
    """A client that has read the first event."""
    client = WireClient(*await asyncio.open_connection("127.0.0.1", port))
    await client.send("POST", CHAT, headers, STREAMING)
    head = await client.head()
    assert head.status == 200, head
    assert await client.chunk() == EVENT
    return client


@pytest.mark.parametrize("resets", [False, True])
async def test_a_permit_of_one_is_free_again_each_time_a_stream_is_left(resets: bool) -> None:
    """Fifty times, one after the other: each is let in once the worker has seen the last one's connection close."""
    gone = asyncio.Semaphore(0)

    async def script(peer: Peer) -> None:
        if b'"stream":true' not in peer.request.body:
            await answer_chat(peer)
            return
        await peer.send(SSE_HEAD + chunk(EVENT))
        await peer.gone()
        gone.release()

    key = {"name": "one", "sha256": sha256(SECRET.encode()).hexdigest(), "max_in_flight": 1}
    bearer = ("Authorization", f"Bearer {SECRET}")
    async with (
        stub_engine(script=script) as engine,
        whole_router(engine, keys=[key]) as router,
    ):
        for _ in range(50):
            client = await open_stream(router.ports["data"], bearer)
            if resets:
                client.reset()
            client.close()
            async with asyncio.timeout(2):
                await gone.acquire()
        answer = await router.data.post(CHAT, json=dict(BODY), headers=dict([bearer]))
        assert answer.status_code == 200
        metrics = await router.settled()
    assert metrics["attempts_total{outcome=client_closed}"] == 50
    assert metrics["requests_total{api=chat,status=closed}"] == 50
    assert not total(metrics, "breaker_opened_total")


async def test_three_hundred_streams_half_of_them_abandoned_leave_room_and_no_connection() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        if b'"stream":true' not in peer.request.body:
            await answer_chat(peer)
            return
        await peer.send(SSE_HEAD + chunk(EVENT))
        await release.wait()
        await peer.send(chunk(EVENT) + LAST_CHUNK)

    async with stub_engine(script=script) as engine, whole_router(engine) as router:
        port = router.ports["data"]
        clients = await asyncio.gather(*(open_stream(port) for _ in range(300)))
        metrics = await router.metrics()
        assert metrics["worker_connections{state=busy}"] == metrics["leases_open"] == 300
        for client in clients[::2]:
            client.close()
        await router.until(lambda found: found["worker_connections{state=busy}"] == 150)
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*(router.ask() for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        release.set()
        for client in clients[1::2]:
            assert [await client.chunk(), await client.chunk()] == [EVENT, b""]
            client.close()
        metrics = await router.settled()
    assert metrics["attempts_total{outcome=client_closed}"] == 150
    assert metrics["attempts_total{outcome=completed}"] == 170


async def test_a_long_answer_that_is_given_up_before_it_comes_is_the_clients_doing() -> None:
    """Not streamed: the worker sees its connection close, and nobody is blamed."""
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.gone()
        gone.set()

    breaker = {"num_faults": 1}
    async with (
        stub_engine(script=script) as engine,
        whole_router(engine, breaker=breaker) as router,
    ):
        client = WireClient(*await asyncio.open_connection("127.0.0.1", router.ports["data"]))
        await client.send("POST", CHAT, body=b'{"model":"m","messages":[]}')
        await router.until(lambda found: found["leases_open"] == 1)
        client.close()
        async with asyncio.timeout(2):
            await gone.wait()
        metrics = await router.settled()
    assert metrics["attempts_total{outcome=client_closed}"] == 1
    assert not total(metrics, "breaker_opened_total")
    assert not total(metrics, "retries_total")
