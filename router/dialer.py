"""Connects to workers, for probes and for requests by the same rules: one trust, every address of a name.

    name ─▶ its addresses: the one that worked last first, families in turn ─▶ race ─▶ TLS ─▶ protocol

An address that has not connected after ``HEAD_START_S``, or has failed, does not hold up the next one: it is tried
beside it, and the first that connects wins. So an address that swallows packets costs that fraction of a
second, once: the winner is remembered and tried first from then on. ``MAX_ADDRESSES`` of a name are tried, and
``MAX_REMEMBERED`` names have a winner; at that bound the name that has had one longest is forgotten. How long it all
may take is the caller's to bound.

Source: RFC 8305 §4, §5.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar

from router.causes import cause_of

HEAD_START_S = 0.25
MAX_ADDRESSES = 16
MAX_REMEMBERED = 4096

_AnyProtocol = TypeVar("_AnyProtocol", bound=asyncio.BaseProtocol)


class Address(NamedTuple):
    """One address of a name, as sockets take it."""

    family: int
    sockaddr: tuple[str | int | bytes, ...]


Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""The addresses of a host and port, or ``OSError``."""
Connect = Callable[[Address], Awaitable[socket.socket]]
"""A connected socket, or ``OSError``."""
Admit = Callable[[str, Sequence[Address]], Sequence[Address]]
"""Of a host's addresses those that may be reached, or ``OSError``."""


class Dialer:
    """Connects. Of one event loop.

    Args:
        tls: for workers at ``https``; None trusts what the system trusts.
        resolve: in place of the system's resolver.
        connect: in place of the system's sockets.
        admit: chooses among a host's addresses before any is tried; all by default.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
        admit: Admit | None = None,
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._resolve = resolve or self._look_up
        self._connect = connect or self._open
        self._admit = admit
        self._winners: dict[tuple[str, int], Address] = {}

    async def dial(
        self, make: Callable[[], _AnyProtocol], host: str, port: int, *, is_tls: bool
    ) -> _AnyProtocol:
        """A protocol that is connected to the host.

        Raises:
            OSError: the name leads nowhere, no address connects, or TLS fails.
            UnicodeError: it is no name.
        """
        sock = await self.reach(host, port)
        context, name = (self._context(), host) if is_tls else (None, None)
        try:
            _, protocol = await self._loop.create_connection(
                make, sock=sock, ssl=context, server_hostname=name
            )
        except BaseException:
            sock.close()
            raise
        return protocol

    async def reach(self, host: str, port: int) -> socket.socket:
        """A socket that is connected to one of the host's addresses.

        Raises:
            OSError: the name leads nowhere, or where nobody may go, or no address connects.
            UnicodeError: it is no name.
        """
        found = await self._resolve(host, port)
        if self._admit is not None:
            found = self._admit(host, found)
        addresses = _in_turn(dict.fromkeys(found), self._winners.get((host, port)))
        sock, winner = await self._race(addresses[:MAX_ADDRESSES])
        if len(addresses) > 1:
            self._remember((host, port), winner)
        return sock

    def check(self) -> None:
        """Verify the invariants."""
        assert len(self._winners) <= MAX_REMEMBERED, len(self._winners)

    async def _race(self, addresses: Sequence[Address]) -> tuple[socket.socket, Address]:
        """The first that connects. Whatever else has connected, or would, is closed.

        Raises:
            OSError: none does; it says why.
        """
        if len(addresses) == 1:
            return await self._connect(addresses[0]), addresses[0]
        runners: dict[asyncio.Task[socket.socket | OSError], Address] = {}
        winner: asyncio.Task[socket.socket | OSError] | None = None
        try:
            async with asyncio.TaskGroup() as group:
                waiting = list(reversed(addresses))
                running: set[asyncio.Task[socket.socket | OSError]] = set()
                while winner is None and (waiting or running):
                    if waiting:
                        address = waiting.pop()
                        runner = group.create_task(self._attempt(address))
                        runners[runner] = address
                        running.add(runner)
                    done, running = await asyncio.wait(
                        running,
                        timeout=HEAD_START_S if waiting else None,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    winner = next((one for one in done if _socket_of(one) is not None), None)
                for runner in running:
                    runner.cancel()
        except BaseException:
            winner = None
            raise
        finally:
            for runner in runners:
                if runner is not winner and (loser := _socket_of(runner)) is not None:
                    loser.close()
        if winner is None or (won := _socket_of(winner)) is None:
            raise _of_all({address: runner.result() for runner, address in runners.items()})
        return won, runners[winner]

    async def _attempt(self, address: Address) -> socket.socket | OSError:
        try:
            return await self._connect(address)
        except OSError as error:
            return error

    def _remember(self, name: tuple[str, int], winner: Address) -> None:
        if name not in self._winners and len(self._winners) >= MAX_REMEMBERED:
            del self._winners[next(iter(self._winners))]
        self._winners[name] = winner

    def _context(self) -> ssl.SSLContext:
        """Made when first needed where none was given: it reads the system's certificates."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    async def _look_up(self, host: str, port: int) -> Sequence[Address]:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]

    async def _open(self, address: Address) -> socket.socket:
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)  # noqa: FBT003
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(sock, address.sockaddr)
        except BaseException:
            sock.close()
            raise
        return sock


def _in_turn(addresses: Iterable[Address], winner: Address | None) -> list[Address]:
    """The one that worked last, then the resolver's order, its families in turn."""
    families: dict[int, list[Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    mixed = [one for one in chain(*zip_longest(*families.values())) if one is not None]
    if winner in mixed:
        mixed.remove(winner)
        mixed.insert(0, winner)
    return mixed


def _socket_of(runner: "asyncio.Task[socket.socket | OSError]") -> socket.socket | None:
    if not runner.done() or runner.cancelled() or runner.exception() is not None:
        return None
    result = runner.result()
    return None if isinstance(result, OSError) else result


def _of_all(failed: dict[Address, socket.socket | OSError]) -> OSError:
    """One error for all: theirs where they agree."""
    causes = {
        str(address.sockaddr[0]): cause_of(error)
        for address, error in failed.items()
        if isinstance(error, OSError)
    }
    if not causes:
        return OSError("the name has no address")
    if len(set(causes.values())) == 1:
        return next(error for error in failed.values() if isinstance(error, OSError))
    return OSError("; ".join(f"{host}: {cause}" for host, cause in causes.items()))
