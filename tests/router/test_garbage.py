"""What a request leaves behind: no cycle through its frames, which would keep its body until a collection."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from router.waiting_queue import QueueLimits
from tests.router.busy_worker import busy_worker, calling, depth
from tests.router.front_door import ask, front_door
from tests.router.stub_worker import Peer, Script, answering, response, stub_worker

OK = answering(response(b'{"ok":true}'))


async def reset(peer: Peer) -> None:
    peer.reset()


async def close(peer: Peer) -> None:
    peer.close()


@contextmanager
def frames_in_cycles() -> Iterator[list[str]]:
    """The list is filled when the block is left: functions of our own whose frames a collection has to find."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        frames = [one for one in gc.garbage if isinstance(one, FrameType)]
        found += [frame.f_code.co_qualname for frame in frames]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(
    ("script", "body"),
    [
        (OK, b'{"model":"m"}'),
        (OK, b'{"model":"unknown"}'),
        (OK, b"{"),
        (reset, b'{"model":"m"}'),
        (close, b'{"model":"m"}'),
        (answering(response(b"{}", status=500)), b'{"model":"m"}'),
        (answering(response(b"{}", status=503)), b'{"model":"m"}'),
    ],
)
async def test_no_frame_of_a_request_is_part_of_a_cycle(script: Script, body: bytes) -> None:
    async with stub_worker(script) as worker, front_door(worker.url) as door:
        with frames_in_cycles() as frames:
            await ask(door, body=body)
            await door.settled()
            await asyncio.sleep(0)
    assert frames == []


@pytest.mark.parametrize("ending", ["placed", "expired", "left", "no_worker", "full", "fault"])
async def test_nor_is_one_of_a_request_that_waited(ending: str) -> None:
    limits = QueueLimits(0 if ending == "full" else 10, 0.01 if ending == "expired" else 10.0)
    async with (
        busy_worker(reset if ending == "fault" else OK) as worker,
        front_door(worker.url, queue=limits, capacity=1) as door,
    ):
        with frames_in_cycles() as frames:
            async with calling(door, "running"), calling(door, "waiting") as waiting:
                if ending not in ("full", "expired"):
                    await depth(door, 1)
                if ending == "left":
                    await waiting.leave()
                    await depth(door, 0)
                elif ending == "no_worker":
                    door.brain.urls.clear()
                    door.relay.queue.workers_changed()
                    await waiting.answer()
                elif ending in ("full", "expired"):
                    await waiting.answer()
                worker.go_on(4)
                await door.settled()
            await asyncio.sleep(0)
    assert frames == []
