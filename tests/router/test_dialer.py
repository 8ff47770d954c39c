"""Which addresses of a name are tried, when, and what becomes of those that lose."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from errno import ECONNREFUSED, EHOSTUNREACH

import pytest

from router.causes import cause_of
from router.dialer import MAX_ADDRESSES, MAX_REMEMBERED, Address, Dialer
from router.hops import Hops
from router.probe import ProbeTimeouts, open_prober
from router.upstream import Fault, UpstreamError, UpstreamTimeouts, open_upstream
from tests.router.stub_worker import answering, response, stub_worker

V4 = [Address(socket.AF_INET, (f"10.0.0.{number}", 1)) for number in range(40)]
V6 = [Address(socket.AF_INET6, (f"::{number}", 1, 0, 0)) for number in range(3)]
Behaviour = Callable[[], Awaitable[None]]


async def works() -> None:
    """Connects."""


async def swallows() -> None:
    """Says nothing."""
    await asyncio.Event().wait()


async def refuses() -> None:
    """Says no."""
    raise ConnectionRefusedError(ECONNREFUSED, "no")


async def is_nowhere() -> None:
    """Cannot be routed to."""
    raise OSError(EHOSTUNREACH, "no")


class Net:
    """Addresses that behave as they are told; a socket pair's end stands for a connection."""

    def __init__(self, *behaviours: Behaviour, addresses: Sequence[Address] = V4) -> None:
        self.behaviours = dict(zip(addresses, behaviours, strict=False))
        self.tried: list[Address] = []
        self.made: list[socket.socket] = []
        self.dialer = Dialer(asyncio.get_running_loop(), resolve=self.resolve, connect=self.connect)

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """All, in this order."""
        return list(self.behaviours)

    async def connect(self, address: Address) -> socket.socket:
        """As the address does."""
        self.tried.append(address)
        await self.behaviours[address]()
        ours, theirs = socket.socketpair()
        theirs.close()
        self.made.append(ours)
        return ours

    async def reach(self) -> list[Address]:
        """What is tried to reach the name; every socket but the one is closed."""
        self.tried.clear()
        sock = await self.dialer.reach("name", 1)
        assert [one for one in self.made if one.fileno() >= 0] == [sock]
        sock.close()
        self.dialer.check()
        return list(self.tried)


async def test_an_address_that_swallows_packets_costs_a_head_start_once() -> None:
    net, loop = Net(swallows, works), asyncio.get_running_loop()
    begun = loop.time()
    assert await net.reach() == V4[:2]
    assert loop.time() - begun < 2
    assert await net.reach() == [V4[1]]


async def test_one_that_worked_and_works_no_more_is_left_again() -> None:
    net = Net(refuses, works)
    assert await net.reach() == V4[:2]
    net.behaviours = {V4[0]: works, V4[1]: refuses}
    assert await net.reach() == [V4[1], V4[0]]
    assert await net.reach() == [V4[0]]
    net.behaviours = {V4[5]: works}
    assert await net.reach() == [V4[5]]


async def test_one_that_refuses_is_followed_at_once() -> None:
    net = Net(refuses, refuses, is_nowhere, works)
    async with asyncio.timeout(0.2):
        assert await net.reach() == V4[:4]


async def test_families_take_turns() -> None:
    net = Net(*[refuses] * 5, works, addresses=[*V6, *V4])
    assert await net.reach() == [V6[0], V4[0], V6[1], V4[1], V6[2], V4[2]]


async def test_two_that_connect_at_once_leave_one_socket() -> None:
    gate = asyncio.Event()

    async def when_open() -> None:
        await gate.wait()

    async def opens() -> None:
        gate.set()

    net = Net(when_open, opens)
    await net.reach()
    assert len(net.made) == 2


async def test_one_that_has_won_as_the_dial_is_cancelled_is_closed_too() -> None:
    """The losers are waited for, and the cancellation comes meanwhile."""
    gate = asyncio.Event()

    async def lingers() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gate.set()
            await asyncio.sleep(10)

    async def wins() -> None:
        await asyncio.sleep(0)

    net = Net(lingers, wins)
    dialling = asyncio.ensure_future(net.reach())
    await gate.wait()
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling
    assert [one.fileno() for one in net.made] == [-1]


@pytest.mark.parametrize(
    ("behaviours", "words"),
    [
        ((), "the name has no address"),
        ((refuses,), "connection refused"),
        ((refuses, refuses), "connection refused"),
        ((refuses, is_nowhere), "10.0.0.0: connection refused; 10.0.0.1: no route to host"),
    ],
)
async def test_why_none_connects(behaviours: tuple[Behaviour, ...], words: str) -> None:
    net = Net(*behaviours)
    with pytest.raises(OSError) as error:  # noqa: PT011  any of them
        await net.dialer.reach("name", 1)
    assert cause_of(error.value) == words


async def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    net = Net(swallows, swallows)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await net.dialer.reach("name", 1)
    assert len(asyncio.all_tasks()) == 1


async def test_addresses_and_memory_are_bounded() -> None:
    net = Net(*[refuses] * 40)
    with pytest.raises(ConnectionRefusedError):
        await net.dialer.reach("name", 1)
    assert len(net.tried) == MAX_ADDRESSES
    net = Net(works, works)
    for number in range(MAX_REMEMBERED + 2):
        (await net.dialer.reach(f"w{number}", 1)).close()
    net.dialer.check()


@pytest.mark.parametrize("first", [swallows, refuses])
async def test_requests_and_probes_pass_by_a_dead_address(first: Behaviour) -> None:
    """Both dial alike, so that a worker which is well takes requests."""
    loop = asyncio.get_running_loop()
    async with stub_worker(answering(response(b"{}"))) as worker:
        real = Address(socket.AF_INET, ("127.0.0.1", worker.port))

        async def resolve(host: str, port: int) -> Sequence[Address]:
            assert (host, port) == ("multi", 80)
            return [V4[0], real]

        async def connect(address: Address) -> socket.socket:
            if address == V4[0]:
                await first()
            sock = socket.socket()
            sock.setblocking(False)  # noqa: FBT003
            await loop.sock_connect(sock, address.sockaddr)
            return sock

        dialer = Dialer(loop, resolve=resolve, connect=connect)
        async with (
            open_upstream(UpstreamTimeouts(), dialer) as client,
            open_prober(ProbeTimeouts(), None, Hops("here"), dialer) as prober,
        ):
            answer = await client.send("GET", "http://multi/x", (), b"")
            assert answer.status == 200
            assert await prober.why_unhealthy("http://multi") is None


async def test_a_probe_fails_where_requests_would() -> None:
    async def resolve(host: str, port: int) -> Sequence[Address]:
        return V4[:2]

    async def connect(address: Address) -> socket.socket:
        raise ConnectionRefusedError(ECONNREFUSED, "no")

    dialer = Dialer(asyncio.get_running_loop(), resolve=resolve, connect=connect)
    async with (
        open_upstream(UpstreamTimeouts(), dialer) as client,
        open_prober(ProbeTimeouts(), None, Hops("here"), dialer) as prober,
    ):
        with pytest.raises(UpstreamError) as error:
            await client.send("GET", "http://multi/x", (), b"")
        assert error.value.fault is Fault.CONNECT
        said = await prober.why_unhealthy("http://multi")
    assert said == "http://multi/health: connection refused"
