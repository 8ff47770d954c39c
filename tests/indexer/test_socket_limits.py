"""What queues at sockets is bounded over the fleet."""

import asyncio

import pytest
import zmq

from indexer import SocketLimits
from indexer.source_sockets import SourceSockets
from protocol import EventSource, Rank, WorkerId
from tests.indexer.running_fleet import running


@pytest.mark.parametrize(
    ("num_sources", "live_hwm"),
    [(0, 10_000), (1, 10_000), (100, 10_000), (101, 9_900), (1_000, 1_000), (4_096, 244), (10**7, 1)],
)  # fmt: skip
def test_each_source_has_its_share(num_sources: int, live_hwm: int) -> None:
    limits = SocketLimits()
    assert limits.of_one(num_sources).live_hwm == live_hwm
    assert num_sources * live_hwm <= max(limits.live_messages, num_sources)


async def test_sockets_open_with_their_share() -> None:
    async with running(SocketLimits(live_hwm=10, live_messages=40)) as fleet:
        await asyncio.sleep(0)  # it starts
        table = fleet.subscriber._table
        found = []
        for i in range(8):
            source = EventSource(Rank(WorkerId(f"w{i}")), "tcp://127.0.0.1:1")
            fleet.subscriber.subscribe(source)
            sockets = table.sockets(source)
            assert isinstance(sockets, SourceSockets)
            found.append(sockets._live.get(zmq.RCVHWM))
        assert found == [10, 10, 10, 10, 8, 6, 5, 5]
