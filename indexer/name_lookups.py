"""Addresses of host names, looked up again and again, off the event loop.

ZeroMQ looks names up in the threads that carry its messages: a resolver that hangs would stop the events of
everybody, and heartbeats with them. So names are looked up here, and sockets connect to addresses.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Host name to its addresses, the preferred one first. Raises one of `LOOKUP_FAULTS`."""

LOOKUP_FAULTS = (OSError, ValueError)
"""What a name may lead to that is none, or that nobody knows. UnicodeError is a ValueError, as is what newer
Pythons raise for a NUL."""


class SystemResolver:
    """The system's resolver, in threads of its own.

    Args:
        num_threads: look-ups at a time; further ones wait.
    """

    def __init__(self, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, "look-up")

    async def __call__(self, host: str) -> Sequence[str]:
        """The host's addresses, each once.

        Raises:
            LOOKUP_FAULTS: nothing is found, or there is no thread to look in.
        """
        loop = asyncio.get_running_loop()
        try:
            found = loop.run_in_executor(self._threads, _look_up, host)
        except RuntimeError as error:  # the process may have no further one, or is about to end
            raise OSError(f"no thread to look {host!r} up in: {error}") from error
        return tuple(dict.fromkeys(await found))

    def close(self) -> None:
        """Wait for no look-up."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str) -> list[str]:
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in answers]


class NameLookups:
    """What was last heard of each name. Names are those of sources, so there are few."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._known: dict[str, tuple[str, ...]] = {}

    def addresses(self, host: str) -> tuple[str, ...]:
        """As last looked up; empty before the first time."""
        return self._known.get(host, ())

    def first(self, host: str) -> str | None:
        """The preferred address, if one is known."""
        return next(iter(self.addresses(host)), None)

    async def look_up(self, host: str) -> tuple[str, ...]:
        """Ask anew.

        Raises:
            LOOKUP_FAULTS: nothing is found. What was known is kept.
        """
        addresses = tuple(await self._resolve(host))
        if not addresses:
            raise OSError(f"no address for {host!r}")
        self._known[host] = addresses
        return addresses

    def keep(self, hosts: set[str]) -> None:
        """Forget all other names."""
        self._known = {host: known for host, known in self._known.items() if host in hosts}
