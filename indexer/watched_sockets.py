"""ZeroMQ sockets that the running event loop watches, opened and closed together."""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address

import zmq

from indexer.socket_limits import SocketLimits

SOCKET_FAULTS = (zmq.ZMQError, OSError, ValueError, TypeError)
"""What an endpoint, or a topic, that is none may lead to; UnicodeError is a ValueError."""


class WatchedSockets:
    """Some sockets of one context.

    A descriptor signals edges: whoever is woken receives to the end, or comes back.

    ZeroMQ's I/O threads serve all sockets of the context, and tell monitors what happens by sends that block: one
    that waits for room, or for somebody who hears it, makes every socket of its thread deaf. So a monitor has no
    bound, and is switched off before its socket closes. A connection brings a few notices; ours comes back at most
    every ``reconnect_s``, and those of whoever connects to us wait for no more than the next turn.

    Args:
        wake: called, on the loop, when something may have arrived at one of them.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        limits: SocketLimits,
        wake: Callable[[], None],
    ) -> None:
        self._context = context
        self._limits = limits
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._open: list[zmq.Socket[bytes]] = []
        self._monitored: set[zmq.Socket[bytes]] = set()

    def open(self, kind: int, endpoint: str, receive_hwm: int) -> zmq.Socket[bytes]:
        """A socket for ``endpoint``, neither bound nor connected yet.

        Raises:
            zmq.ZMQError: there are no more sockets.
        """
        limits, socket = self._limits, self._add(kind)
        socket.set(zmq.RCVHWM, receive_hwm)
        socket.set(zmq.MAXMSGSIZE, limits.max_message_bytes)
        socket.set(zmq.IPV6, int(":" in host_of(endpoint)))
        socket.set(zmq.HEARTBEAT_IVL, _ms(limits.heartbeat_s))
        socket.set(zmq.HEARTBEAT_TIMEOUT, _ms(limits.heartbeat_timeout_s))
        socket.set(zmq.CONNECT_TIMEOUT, _ms(limits.connect_timeout_s))
        socket.set(zmq.RECONNECT_IVL, _ms(limits.reconnect_s))
        socket.set(zmq.RECONNECT_IVL_MAX, _ms(limits.reconnect_max_s))
        self._loop.add_reader(socket.FD, self._wake)
        return socket

    def monitor(self, socket: zmq.Socket[bytes], name: str, events: int) -> zmq.Socket[bytes]:
        """A socket that tells what becomes of the connections of ``socket``.

        Args:
            name: unique within the context.
        """
        address = f"inproc://kvroute-{name}"
        socket.monitor(address, events)
        self._monitored.add(socket)
        monitor = self._add(zmq.PAIR)
        monitor.set(zmq.RCVHWM, 0)
        monitor.connect(address)
        self._loop.add_reader(monitor.FD, self._wake)
        return monitor

    def close(self, socket: zmq.Socket[bytes]) -> None:
        """Close one, without waiting."""
        self._open.remove(socket)
        self._loop.remove_reader(socket.FD)
        if socket in self._monitored:
            self._monitored.remove(socket)
            socket.disable_monitor()
        socket.close(0)

    def close_all(self) -> None:
        """Close all of them, without waiting. Idempotent."""
        for socket in tuple(self._open):
            self.close(socket)

    def _add(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        self._open.append(socket)
        socket.set(zmq.LINGER, 0)
        return socket


def host_of(endpoint: str) -> str:
    """The host of ``tcp://host:port``, without brackets; empty where there is none."""
    return endpoint.partition("://")[2].rpartition(":")[0].strip("[]")


def at_address(endpoint: str, address: str) -> str:
    """The endpoint with an address in place of its host."""
    scheme, _, rest = endpoint.partition("://")
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{rest.rpartition(':')[2]}"


def is_address(host: str) -> bool:
    """Is it an IP address?"""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _ms(seconds: float) -> int:
    return round(seconds * 1e3)
