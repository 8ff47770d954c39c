"""An answer that came before its connection was reset is read, though the request could not be written."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop

from router.last_words import last_words
from router.upstream import Fault, UpstreamError
from router.upstream_answer import UpstreamTimeouts
from router.upstream_connection import UpstreamConnection

REFUSAL = b"HTTP/1.1 413 X\r\nContent-Length: 7\r\n\r\ntoo big"
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
Loop = Callable[[], asyncio.AbstractEventLoop]


class Home:
    """Counts what comes back."""

    num_released = 0
    num_lost = 0

    def released(self, connection: UpstreamConnection, now: float) -> None:
        """It can serve again."""
        self.num_released += 1

    def lost(self, connection: UpstreamConnection) -> None:
        """It is gone."""
        self.num_lost += 1


async def lost_after(said: bytes) -> tuple[int, bytes]:
    """Send a large request to a worker that has said this and reset the connection: status and body.

    Raises:
        UpstreamError: as the reader of the answer gets it.
    """
    home, loop = Home(), asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.settimeout(0)
    _, connection = await loop.create_connection(
        lambda: UpstreamConnection(home, loop, UpstreamTimeouts()), sock=near
    )
    far.sendall(said)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    answer = connection.send(b"POST / HTTP/1.1\r\n\r\n", b"x" * 2_000_000, is_head_request=False)
    try:
        await answer.begun()
        body = b""
        while not answer.is_complete:
            body += await answer.read()
    finally:
        answer.close()
        await asyncio.sleep(0.01)
        assert (home.num_released, home.num_lost) == (0, 1)
    return answer.status, body


@LOOPS
def test_a_whole_answer_is_taken(loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(lost_after(REFUSAL)) == (413, b"too big")


@LOOPS
@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (b"", Fault.RESET),
        (REFUSAL[:9], Fault.RESET),
        (REFUSAL[:-1], Fault.RESET),
        (b"SSH-2.0-x\r\n", Fault.MALFORMED),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", Fault.RESET),
    ],
)
def test_what_is_no_whole_answer_fails_as_ever(loop: Loop, said: bytes, fault: Fault) -> None:
    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(UpstreamError) as error:
        runner.run(lost_after(said))
    assert error.value.fault is fault


def test_a_transport_without_a_socket_has_none() -> None:
    assert last_words(asyncio.BaseTransport()) == b""


def test_nor_has_one_whose_socket_is_closed() -> None:
    with socket.socket() as sock:
        pass
    assert last_words(asyncio.BaseTransport({"socket": sock})) == b""
