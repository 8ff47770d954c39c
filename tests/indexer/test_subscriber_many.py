"""Many ranks in one process, each with sockets, stream and replay of its own."""

import resource

import pytest

from indexer import SocketLimits, Trust
from protocol import EventSource, Rank, WorkerId
from tests.indexer.raw_publisher import RawPublisher, buffered, payload
from tests.indexer.running_fleet import running
from tests.needs import lacking

NUM_RANKS = 256
FILES_A_RANK = 10  # both ends of live socket and replay


@pytest.fixture
def _many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_A_RANK * NUM_RANKS + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        lacking(f"needs {needed} open files, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


@pytest.mark.usefixtures("_many_files")
async def test_hundreds_of_ranks_are_recovered_and_heard() -> None:
    """Thirty workers of eight ranks and more: replayed, live, and none of them short of a socket."""
    async with running(SocketLimits(tick_s=0.1)) as fleet:
        publisher = RawPublisher(fleet.changes, answer=buffered([(0, payload(0))]))
        sources = [
            EventSource(
                Rank(WorkerId(f"w{number // 8}"), number % 8),
                publisher.endpoint,
                publisher.replay_endpoint,
                f"kv@{number}@",
            )
            for number in range(NUM_RANKS)
        ]
        for source in sources:
            fleet.subscriber.subscribe(source)
        await fleet.changes.until(lambda: publisher.num_subscribers == NUM_RANKS)
        for source in sources:
            await fleet.trust(source, Trust.EXACT)
        for source in sources:
            publisher.send(1, payload(1), f"{source.topic}m".encode())
        for source in sources:
            await fleet.claims(source, 0, 1)
        assert fleet.count("open_failures") == fleet.count("ask_failures") == 0
        publisher.close()


async def test_a_fleet_beyond_the_sockets_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with what to raise; whoever has sockets is heard."""
    limits = SocketLimits(max_sockets=9, tick_s=0.02, reopen_s=0.05)
    async with running(limits) as fleet:
        publisher = RawPublisher(fleet.changes)
        sources = [
            EventSource(Rank(WorkerId(f"w{number}")), publisher.endpoint) for number in range(5)
        ]
        for source in sources:
            fleet.subscriber.subscribe(source)
        await fleet.changes.until(lambda: fleet.count("open_failures") >= 4)
        told = [one.message for one in caplog.records if "raise the limit" in one.message]
        assert told == [
            "3 event sources need 12 sockets, and there are 9: raise the limit of open files"
        ]
        await fleet.changes.until(lambda: publisher.num_subscribers > 0)
        publisher.send(0, payload(0))
        await fleet.changes.until(lambda: fleet.sink.claims[sources[0].rank] == {0})
        publisher.close()
