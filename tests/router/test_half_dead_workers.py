"""Workers that live by half: they accept and say nothing, or are well for probes alone, or say a little and stop."""

import asyncio
import json

import pytest

from tests.router.stub_engine import stub_engine
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, Script, chunk
from tests.router.whole_router import BODY, CHAT, total, whole_router

QUICK = {"interval_s": 0.05, "timeout_s": 0.1, "failure_threshold": 2}
ROUND_ROBIN = "round_robin"


async def nothing(peer: Peer) -> None:
    """Accepts, reads, never answers."""
    await peer.gone()


async def head_and_nothing(peer: Peer) -> None:
    """A head, then nothing."""
    await peer.send(SSE_HEAD)
    await peer.gone()


async def length_and_nothing(peer: Peer) -> None:
    """A head that promises a body, then nothing."""
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    await peer.gone()


async def half_a_head(peer: Peer) -> None:
    """A head that does not end."""
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    await peer.gone()


async def interim_and_nothing(peer: Peer) -> None:
    """It says that it works on it, and nothing more."""
    await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
    await peer.gone()


BEFORE_THE_HEAD = [nothing, half_a_head, interim_and_nothing]
BEFORE_THE_BODY = [head_and_nothing, length_and_nothing]


@pytest.mark.parametrize("script", BEFORE_THE_HEAD)
async def test_one_that_is_well_for_probes_and_answers_no_request_is_left_alone(
    script: Script,
) -> None:
    """Each waits for the bound of a first byte, and no more of them than open the circuit; none is repeated."""
    timeouts = {"first_byte_s": 0.2}
    breaker = {"num_faults": 3, "cool_down_s": 60.0, "max_cool_down_s": 60.0}
    async with (
        stub_engine(script=script) as bad,
        stub_engine() as good,
        whole_router(bad, good, timeouts=timeouts, breaker=breaker, policy=ROUND_ROBIN) as router,
    ):
        answers = [await router.ask() for _ in range(20)]
        metrics = await router.settled()
    told = [answer.status_code for answer in answers]
    assert (told.count(504), told.count(200)) == (3, 17)
    codes = {answer.json()["error"]["code"] for answer in answers if answer.status_code == 504}
    assert codes == {"worker_timed_out"}
    assert (bad.num_served, good.num_served) == (3, 17)
    assert metrics["attempts_total{outcome=timed_out}"] == 3
    assert not total(metrics, "retries_total")


@pytest.mark.parametrize("script", BEFORE_THE_BODY)
async def test_one_that_sends_a_head_and_nothing_is_no_success(script: Script) -> None:
    timeouts = {"first_byte_s": 0.2}
    async with (
        stub_engine(script=script) as engine,
        whole_router(engine, timeouts=timeouts) as router,
    ):
        lines = []
        with pytest.raises(Exception, match="peer closed connection"):  # noqa: PT012
            async with router.data.stream("POST", CHAT, json=dict(BODY)) as stream:
                assert stream.status_code == 200
                async for line in stream.aiter_lines():
                    lines.append(line)
        if script is head_and_nothing:
            assert (
                json.loads(lines[0].removeprefix("data: "))["error"]["code"] == "worker_timed_out"
            )
        metrics = await router.settled()
    assert metrics["attempts_total{outcome=timed_out}"] == 1
    assert metrics["broken_answers_total"] == 1
    assert not total(metrics, "ttft_seconds_count")


@pytest.mark.parametrize("script", [nothing, half_a_head])
async def test_one_that_freezes_whole_is_out_long_before_any_timeout(script: Script) -> None:
    """Probes get no answer either: those that wait go elsewhere once it is unhealthy."""
    is_frozen = asyncio.Event()
    async with stub_engine(script=script) as bad, stub_engine() as good:
        serve = bad.worker.script

        async def freezing(peer: Peer) -> None:
            await (nothing(peer) if is_frozen.is_set() else serve(peer))

        bad.worker.script = freezing
        async with whole_router(bad, good, health=QUICK, policy=ROUND_ROBIN) as router:
            asked = [asyncio.ensure_future(router.ask()) for _ in range(10)]
            for _ in range(5):
                await bad.worker.arrived.acquire()
            is_frozen.set()
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200] * 10
            assert {answer.headers["x-kvroute-worker"] for answer in answers} == {good.name}
            assert [(await router.ask()).status_code for _ in range(5)] == [200] * 5
            metrics = await router.settled()
            assert metrics["retries_total{reason=unhealthy}"] == bad.num_served
            is_frozen.clear()
            bad.worker.script = serve
            await router.until(lambda found: found["workers{state=serving}"] == 2)


async def test_one_that_trickles_is_slow_and_nothing_else() -> None:
    """A byte at a time, each within the bound of silence, for much longer than any bound."""
    text = b'data: {"choices":[{"delta":{"content":"slow"}}]}\n\n'

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD)
        for index in range(len(text)):
            await peer.send(chunk(text[index : index + 1]))
            await asyncio.sleep(0.02)
        await peer.send(LAST_CHUNK)

    timeouts = {"first_byte_s": 0.5, "idle_s": 0.5}
    async with (
        stub_engine(script=script) as engine,
        whole_router(engine, timeouts=timeouts) as router,
    ):
        answer = await router.ask(stream=True)
        assert answer.content == text
        metrics = await router.settled()
    assert metrics["attempts_total{outcome=completed}"] == 1


@pytest.mark.parametrize(
    ("last", "resets"),
    [
        (b"data: [DONE]\n\n", False),
        (b"data: [DONE]\n\n", True),
        (b"data: [DONE]", False),
        (b'data: {"usage":{}}\n\ndata: [DONE]\n\n', True),
    ],
)
async def test_a_stream_that_says_done_and_has_no_end_is_no_success(
    last: bytes, resets: bool
) -> None:
    """The words of an engine are not the end of its answer; nothing is put after them that clients could take for one."""
    event = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'

    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(event) + chunk(last))
        await read.wait()
        if resets:
            peer.reset()
        else:
            peer.close()

    read = asyncio.Event()
    got = b""
    async with stub_engine(script=script) as engine, whole_router(engine) as router:
        with pytest.raises(Exception, match="peer closed connection"):  # noqa: PT012
            async with router.data.stream("POST", CHAT, json=dict(BODY)) as stream:
                async for piece in stream.aiter_bytes():
                    got += piece
                    if got == event + last:
                        read.set()
        metrics = await router.settled()
    assert got.startswith(event + last)
    assert b"worker_broke_off" in got.removeprefix(event + last)
    assert metrics["attempts_total{outcome=broken_off}"] == 1
    assert not metrics.get("attempts_total{outcome=completed}")


@pytest.mark.parametrize(
    "said",
    [
        b'data: {"error":{"message":"CUDA out of memory","code":500}}\n\ndata: [DONE]\n\n',
        b'event: error\ndata: {"type":"error"}\n\ndata: [DONE]\n\n',
        b"data: [DONE]\n\n",  # and no content at all
    ],
)
async def test_a_stream_that_ends_well_and_says_an_error_passes_and_is_no_success(
    said: bytes,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(said) + LAST_CHUNK)

    async with stub_engine(script=script) as engine, whole_router(engine) as router:
        assert (await router.ask(stream=True)).content == said
        metrics = await router.settled()
    assert metrics["attempts_total{outcome=worker_error}"] == 1
