"""Names of a tap's hosts: looked up together, within a bound, and by nobody who has gone."""

import asyncio

import pytest

from kvroute.tap.listening import addresses_of
from protocol import EventSource, Rank, WorkerId

SOURCES = [
    EventSource(Rank(WorkerId("a")), "tcp://known:1", "tcp://slow:2"),
    EventSource(Rank(WorkerId("b")), "tcp://nobody:1"),
    EventSource(Rank(WorkerId("c")), "tcp://*:1", is_bound=True),
]


class Resolver:
    """Knows one name; one never comes back."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.left: set[str] = set()
        self.is_asked = asyncio.Event()

    async def __call__(self, host: str) -> str | None:
        self.asked.add(host)
        try:
            if host == "slow":
                self.is_asked.set()
                await asyncio.Event().wait()
        finally:
            self.left.add(host)
        return "10.0.0.1" if host == "known" else None


async def test_names_that_are_not_found_in_time_are_left_out() -> None:
    resolver = Resolver()
    assert await addresses_of(SOURCES, resolver, timeout_s=0.01) == {"known": "10.0.0.1"}
    assert resolver.asked == resolver.left == {"known", "slow", "nobody"}


async def test_a_tap_that_ends_leaves_no_look_up_behind() -> None:
    resolver = Resolver()
    task = asyncio.ensure_future(addresses_of(SOURCES, resolver, timeout_s=3600.0))
    await resolver.is_asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert resolver.left == {"known", "slow", "nobody"}


async def test_addresses_are_their_own() -> None:
    source = EventSource(Rank(WorkerId("a")), "tcp://127.0.0.1:1", "tcp://[::1]:2")
    assert await addresses_of([source]) == {"127.0.0.1": "127.0.0.1", "::1": "::1"}
    assert await addresses_of([]) == {}
