"""Connections that break, come late, hang, or lead elsewhere, over real sockets."""

import asyncio
import contextlib
import socket
from dataclasses import replace

import pytest

from indexer import ForgetReason, SocketLimits, StreamLimits, Trust
from protocol import EventSource, Rank, WorkerId
from tests.indexer.loopback import LoopbackPublisher
from tests.indexer.raw_publisher import RawPublisher, payload
from tests.indexer.running_fleet import QUICK, running


async def test_a_restart_at_the_same_address_without_replay() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w", has_replay=False)
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        for block in range(10):
            publisher.publish(block)
        await fleet.claims(source, *range(10))
        await fleet.close(publisher)
        restarted = fleet.publisher(publisher.ports, stamp=1e6)
        await fleet.subscribed(restarted)
        restarted.publish(77)
        await fleet.claims(source, 77)
        assert fleet.sink.forgets == [(source.rank, ForgetReason.RESTARTED)]
        assert fleet.sink.trust[source.rank] is Trust.EXACT


async def test_a_restart_that_has_passed_the_old_number_is_found_by_comparison() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        for block in (1, 2, 3):
            publisher.publish(block)
        await fleet.claims(source, 1, 2, 3)
        await fleet.trust(source, Trust.EXACT)
        await fleet.close(publisher)
        restarted = fleet.publisher(publisher.ports, stamp=1e6)
        for block in (11, 12, 13):
            restarted.publish(block, is_withheld=True)
        await fleet.subscribed(restarted)
        restarted.publish(14)
        await fleet.claims(source, 11, 12, 13, 14)
        await fleet.trust(source, Trust.EXACT)


async def test_a_publisher_that_comes_late_is_found() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        ports = publisher.ports
        await fleet.close(publisher)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        late = fleet.publisher(ports)
        late.publish(5)
        await fleet.claims(source, 5)
        await fleet.trust(source, Trust.EXACT)


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 loopback on this machine")
async def test_ipv6_addresses() -> None:
    async with running() as fleet:
        publisher = fleet.publisher(host="[::1]")
        publisher.publish(1)
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.claims(source, 1)
        await fleet.trust(source, Trust.EXACT)


class Names:
    """A resolver whose answers change."""

    def __init__(self, **answers: str) -> None:
        self.answers = {host: tuple(found.split()) for host, found in answers.items()}
        self.num_asked = 0

    async def __call__(self, host: str) -> tuple[str, ...]:
        self.num_asked += 1
        await asyncio.sleep(0)
        if not self.answers.get(host):
            raise OSError(f"nobody knows {host}")
        return self.answers[host]


def _named(publisher: LoopbackPublisher, host: str) -> EventSource:
    live, replay = publisher.ports
    return EventSource(Rank(WorkerId("w")), f"tcp://{host}:{live}", f"tcp://{host}:{replay}")


async def test_a_name_is_tried_at_each_of_its_addresses() -> None:
    limits = SocketLimits(tick_s=0.02, reopen_s=0.05, other_address_s=0.1)
    names = Names(engine="127.0.0.2 ::1 127.0.0.1")
    async with running(limits, resolve=names) as fleet:
        publisher = fleet.publisher()
        publisher.publish(1)
        source = _named(publisher, "engine")
        fleet.subscriber.subscribe(source)
        await fleet.claims(source, 1)
        await fleet.trust(source, Trust.EXACT)
        assert fleet.count("other_addresses") == 2


async def test_a_name_that_nobody_knows_yet_is_looked_up_until_somebody_does() -> None:
    limits = SocketLimits(tick_s=0.02, reopen_s=0.02)
    names = Names()
    async with running(limits, resolve=names) as fleet:
        publisher = fleet.publisher()
        publisher.publish(1)
        source = _named(publisher, "engine")
        fleet.subscriber.subscribe(source)
        await fleet.changes.until(lambda: fleet.count("lookup_failures") >= 2)
        assert fleet.count("open_failures") == 0
        names.answers["engine"] = ("127.0.0.1",)
        await fleet.claims(source, 1)


async def test_a_publisher_that_moved_is_followed() -> None:
    """Its name leads elsewhere; the port at the old address is dead, or another worker's."""
    limits = SocketLimits(tick_s=0.02, reopen_s=0.05, reconnect_s=0.01)
    names = Names(engine="127.0.0.1")
    async with running(limits, resolve=names) as fleet:
        publisher = fleet.publisher()
        source = _named(publisher, "engine")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(1)
        await fleet.claims(source, 1)
        num_asked = names.num_asked
        moved = fleet.publisher(publisher.ports, stamp=1e6, host="127.0.0.2")
        names.answers["engine"] = ("127.0.0.2",)
        await fleet.close(publisher)
        await fleet.subscribed(moved)
        moved.publish(2)
        await fleet.claims(source, 2)
        await fleet.trust(source, Trust.EXACT)
        assert fleet.sink.forgets == [(source.rank, ForgetReason.RESTARTED)]
        assert fleet.count("moves") == 1
        assert names.num_asked > num_asked
        await fleet.changes.until(lambda: not fleet.subscriber._table._looking)
        settled = names.num_asked
        for _ in range(3):
            fleet.passed_s += limits.reopen_s
            fleet.subscriber.tick()
            await asyncio.sleep(0)  # a look-up would begin
        assert names.num_asked == settled, "nothing is looked up while all are connected"


async def test_sockets_that_are_left_for_others_get_no_further_turn() -> None:
    """They were woken in the moment in which the name was found to lead elsewhere."""
    limits = SocketLimits(tick_s=0.02, reopen_s=3600.0, reconnect_s=0.01)
    names = Names(engine="127.0.0.1")
    async with running(limits, resolve=names) as fleet:
        publisher, other = fleet.publisher(), fleet.publisher()
        source, sound = _named(publisher, "engine"), other.source("other")
        for one in (source, sound):
            fleet.subscriber.subscribe(one)
        await fleet.changes.until(lambda: fleet.intake.is_connected(source))
        moved = fleet.publisher(publisher.ports, host="127.0.0.2")
        await fleet.close(publisher)
        await fleet.changes.until(lambda: not fleet.intake.is_connected(source))
        names.answers["engine"] = ("127.0.0.2",)
        table = fleet.subscriber._table
        sockets = table.sockets(source)
        assert sockets is not None
        await table._lookups.look_up("engine")
        fleet.subscriber._wake(sockets)
        table._move(source)
        assert sockets.is_closed
        moved.publish(1)
        other.publish(2)
        await fleet.claims(source, 1)
        await fleet.claims(sound, 2)
        assert (fleet.count("moves"), fleet.count("failures")) == (1, 0)


@pytest.mark.parametrize(
    "fault",
    [
        OSError(9, "bad descriptor"),
        socket.gaierror(socket.EAI_NONAME, "not known"),
        socket.herror(1, "unknown host"),
        TimeoutError("no answer"),
        UnicodeError("label too long"),
        UnicodeEncodeError("idna", "\udcff", 0, 1, "surrogate"),
        ValueError("embedded null character"),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_whatever_a_name_leads_to_costs_that_name_alone(fault: Exception) -> None:
    async def resolve(host: str) -> tuple[str, ...]:
        if host == "engine":
            return ("127.0.0.1",)
        raise fault

    limits = SocketLimits(tick_s=0.02, reopen_s=0.02)
    async with running(limits, resolve=resolve) as fleet:
        publisher, lost = fleet.publisher(), fleet.publisher()
        lost_source = EventSource(Rank(WorkerId("x")), f"tcp://lost:{lost.ports[0]}")
        fleet.subscriber.subscribe(lost_source)
        await fleet.changes.until(lambda: fleet.count("lookup_failures") >= 2)
        source = _named(publisher, "engine")
        fleet.subscriber.subscribe(source)
        publisher.publish(1)
        await fleet.claims(source, 1)


async def test_a_resolver_that_hangs_stops_nobody_else() -> None:
    async def hang(host: str) -> tuple[str, ...]:
        if host == "engine":
            return ("127.0.0.1",)
        await asyncio.Event().wait()
        return ()

    async with running(resolve=hang) as fleet:
        publisher, stuck = fleet.publisher(), fleet.publisher()
        source = _named(publisher, "engine")
        port = stuck.ports[0]
        fleet.subscriber.subscribe(EventSource(Rank(WorkerId("x")), f"tcp://stuck:{port}"))
        fleet.subscriber.subscribe(source)
        publisher.publish(1)
        await fleet.claims(source, 1)
        await fleet.changes.until(lambda: fleet.intake.is_connected(source))


@pytest.mark.parametrize("host", ["127.0.0.1", "engine"])
async def test_a_replay_is_asked_nowhere_that_the_resolver_does_not_lead(host: str) -> None:
    """Were it left to ZeroMQ, which knows where localhost is, it would be asked there. Live events are heard meanwhile, and the
    replay is asked for once the name leads somewhere."""
    found: dict[str, tuple[str, ...]] = {"engine": ("127.0.0.1",)}

    async def look_up(name: str) -> tuple[str, ...]:
        if name not in found:
            raise OSError("this may not be reached")
        return found[name]

    limits = StreamLimits(repair_s=0.05, repair_max_s=0.05)
    async with running(stream_limits=limits, resolve=look_up) as fleet:
        publisher = fleet.publisher()
        publisher.publish(1)
        port, replay_port = publisher.ports
        source = EventSource(
            Rank(WorkerId("w")), f"tcp://{host}:{port}", f"tcp://localhost:{replay_port}"
        )
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(2)
        await fleet.claims(source, 2)
        await fleet.changes.until(lambda: fleet.count("ask_failures") >= 2)
        found["localhost"] = ("127.0.0.1",)
        await fleet.claims(source, 1, 2)


async def test_a_name_by_the_systems_own_resolver() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        publisher.publish(1)
        source = _named(publisher, "localhost")
        fleet.subscriber.subscribe(source)
        await fleet.claims(source, 1)


class Forwarder:
    """A TCP forwarder that can fall silent without closing anything."""

    def __init__(self) -> None:
        self.target = 0
        self.is_silent = False
        self.server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def stop_accepting(self) -> None:
        """Nobody new gets through; connections stay as they are."""
        assert self.server is not None
        self.server.close()

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        is_silent = self.is_silent
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                if self.is_silent and not is_silent:
                    continue  # swallowed, in both directions
                target.write(data)

        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            writer.close()
            back.close()


@pytest.mark.parametrize("is_moved", [False, True])
async def test_a_half_open_connection_is_given_up(is_moved: bool) -> None:
    """The path swallows all packets and closes nothing. Meanwhile a new publisher stands elsewhere: behind the
    same address, or at another one that the name leads to by then. It is found within a bound."""
    limits = SocketLimits(
        tick_s=0.02,
        heartbeat_s=0.05,
        heartbeat_timeout_s=0.15,
        reconnect_s=0.01,
        reopen_s=0.05,
        connect_timeout_s=0.1,
    )
    names = Names(engine="127.0.0.1")
    async with running(limits, resolve=names) as fleet:
        publisher = fleet.publisher()
        forwarder = Forwarder()
        forwarder.target = publisher.ports[0]
        port = await forwarder.start()
        source = EventSource(Rank(WorkerId("w")), f"tcp://engine:{port}")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        publisher.publish(1)
        await fleet.claims(source, 1)
        if is_moved:
            elsewhere = fleet.publisher((port, 0), stamp=1e6, host="127.0.0.2")
            names.answers["engine"] = ("127.0.0.2",)
            await forwarder.stop_accepting()
        else:
            elsewhere = fleet.publisher(stamp=1e6)
            forwarder.target = elsewhere.ports[0]
        forwarder.is_silent = True
        since = asyncio.get_running_loop().time()
        await fleet.subscribed(elsewhere)
        elsewhere.publish(2)
        await fleet.claims(source, 2)
        assert asyncio.get_running_loop().time() - since < 5.0
        assert fleet.sink.forgets == [(source.rank, ForgetReason.RESTARTED)]
        assert fleet.count("moves") == int(is_moved)
        await forwarder.stop()


async def test_a_connection_that_a_frame_too_large_broke_is_made_anew() -> None:
    """ZeroMQ itself gives such a peer up for good."""
    limits = replace(QUICK, max_message_bytes=10_000)
    async with running(limits) as fleet:
        publisher = RawPublisher(fleet.changes)
        source = EventSource(Rank(WorkerId("w")), publisher.endpoint, None)
        fleet.subscriber.subscribe(source)
        await fleet.changes.until(lambda: publisher.num_subscribers > 0)
        publisher.send(0, payload(0))
        await fleet.claims(source, 0)
        publisher.send(1, b"x" * 20_000)
        await fleet.changes.until(lambda: publisher.num_subscriptions == 2)
        publisher.send(2, payload(2))
        await fleet.claims(source, 0, 2)
        assert fleet.sink.losses[source.rank] == 1
        assert fleet.count("given_up") == 1
        publisher.close()


async def test_a_publisher_that_ends_is_not_one_that_was_given_up() -> None:
    async with running() as fleet:
        publisher = fleet.publisher()
        source = publisher.source("w")
        fleet.subscriber.subscribe(source)
        await fleet.subscribed(publisher)
        await fleet.close(publisher)
        await fleet.changes.until(lambda: not fleet.intake.is_connected(source))
        restarted = fleet.publisher(publisher.ports)
        await fleet.subscribed(restarted)
        assert fleet.count("given_up") == 0
