"""What a request leaves behind: no cycle through its frames, which would keep its body until a collection."""

import asyncio
import gc
from types import FrameType

import pytest

from tests.router.front_door import ask, front_door
from tests.router.stub_worker import Peer, Script, answering, response, stub_worker

OK = answering(response(b'{"ok":true}'))


async def reset(peer: Peer) -> None:
    peer.reset()


async def close(peer: Peer) -> None:
    peer.close()


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
        gc.collect()
        gc.disable()
        try:
            await ask(door, body=body)
            await door.settled()
            await asyncio.sleep(0)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            frames = [one for one in gc.garbage if isinstance(one, FrameType)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert [frame.f_code.co_qualname for frame in frames] == []
