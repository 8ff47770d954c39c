"""Listening: sockets bound before anything runs, and one uvicorn server a port.

Signals are not the servers' business: the service stops them in its own order.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from router.connections import ConnectionGuard
from router.http_protocol import FrontDoorProtocol
from router.tls_door import TlsDoor

_BACKLOG = 2048


class PortInUseError(Exception):
    """An address cannot be listened on. The message names it."""


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening socket; port 0 lets the system choose, host ``::`` is every address, also of IPv4.

    Accepted connections inherit TCP_NODELAY. It is set here because asyncio sets it on sockets of explicit
    protocol TCP only, and without it short chunks on a kept connection wait 40 ms for an acknowledgement.

    Raises:
        PortInUseError: the address is taken, unknown, or not allowed.
    """
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        is_dual = bare == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            (bare, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual
        )
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        words = (error.strerror or str(error)).partition(" (while attempting to bind")[0]
        raise PortInUseError(f"cannot listen on {host}:{port}: {words}") from error


def address_of(sock: socket.socket) -> str:
    """``host:port`` as it is listened on."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class PortServer(uvicorn.Server):
    """A server that leaves signals alone; ``should_exit`` stops it.

    Args:
        guard: of its connections.
    """

    def __init__(self, config: uvicorn.Config, guard: ConnectionGuard) -> None:
        super().__init__(config)
        self._guard = guard

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections. The base does it likewise, but has no bounds for handshakes."""
        loop = asyncio.get_running_loop()
        config, tls = self.config, self.config.ssl
        make = partial(
            cast("Callable[..., asyncio.Protocol]", config.http_protocol_class),
            config,
            self.server_state,
            self.lifespan.state,
        )
        self.servers: list[asyncio.Server] = []
        for sock in sockets or ():
            if tls is None:
                self.servers.append(await loop.create_server(make, sock=sock, backlog=_BACKLOG))
            else:
                door = TlsDoor(sock, make, tls, self._guard)
                door.open()
                self.servers.append(cast("asyncio.Server", door))
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing to capture."""
        yield

    def stop(self) -> None:
        """Stop accepting, finish what runs within the grace time, then cancel it."""
        self.should_exit = True

    def cut(self) -> None:
        """Cancel what runs. Applications still get to say so."""
        tasks = self.server_state.tasks
        for task in list(tasks):
            task.add_done_callback(tasks.discard)  # one that has not begun leaves no other way
            task.cancel("the router is stopping")

    def abort(self) -> None:
        """Close every connection, whatever is on its way, and end."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        self.force_exit = True


def make_server(
    app: ASGIApp, guard: ConnectionGuard, *, grace_s: float, tls: ssl.SSLContext | None = None
) -> PortServer:
    """A server for one ASGI application; headers of answers are the application's alone."""
    return PortServer(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(FrontDoorProtocol, guard=guard)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(grace_s)),
            ssl_context_factory=None if tls is None else lambda _config, _make: tls,
        ),
        guard,
    )
