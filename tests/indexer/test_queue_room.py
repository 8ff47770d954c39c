"""What waits at a socket is bounded by bytes, too."""

from collections.abc import Iterator

import pytest
import zmq

from indexer.queue_room import QueueRoom


@pytest.fixture
def socket() -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVHWM, 1000)
        yield socket


@pytest.mark.parametrize(
    ("sizes", "room"),
    [
        ([], 1000),
        ([0], 1000),
        ([1_000], 1000),
        ([1_001], 512),
        ([10_000, 1_001], 64),
        ([400_000], 2),
        ([600_000], 1),
        ([5_000_000], 1),
        ([400_000] + 255 * [100] + 255 * [100], 2),
        ([400_000] + 255 * [100] + 256 * [100], 2),
        ([400_000] + 3 * 256 * [100], 1000),
        ([400_000] + 3 * 256 * [100] + [10_000], 64),
    ],
)
def test_as_many_may_wait_as_fit_by_the_longest_of_late(
    socket: zmq.Socket[bytes], sizes: list[int], room: int
) -> None:
    bound = QueueRoom(socket, 1000, 1_000_000)
    for size in sizes:
        bound.note(size)
    assert bound.num_messages == room
    assert socket.get(zmq.RCVHWM) == room
