"""The router as a process: from its sockets to its end.

    sockets bound ▶ client pools ▶ brain ▶ tasks ▶ two servers ▶ SIGTERM ▶ drain ▶ stop

One event loop, one owner of all state. At SIGTERM or SIGINT the router turns unready and serves on for
the drain window, then stops accepting, finishes running answers within their bound, and ends. A second
signal cuts both waits short. A part that fails for good ends the process at once, for whoever started it
starts it again: a router without one of its parts would serve on, and wrongly.
"""

import asyncio
import logging
import socket
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack

from router.config import RouterConfig
from router.library_logs import quieten_libraries
from router.plain_text import plain
from router.ports import PortServer, address_of, listen
from router.stop_signal import StopSignal
from router.wiring import LAST_WORDS_S, RouterParts, wired

logger = logging.getLogger(__name__)


class PartFailedError(Exception):
    """A part of the router failed for good. The message names it."""


async def serve(config: RouterConfig) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        PortInUseError: an address cannot be listened on.
        PartFailedError: a part failed; everything else was stopped at once.
    """
    quieten_libraries()
    async with AsyncExitStack() as stack:
        sockets = {
            name: stack.enter_context(listen(host, port))
            for name, (host, port) in config.addresses().items()
        }
        stop = stack.enter_context(StopSignal())
        router = await stack.enter_async_context(wired(config))
        for name, sock in sockets.items():
            scheme = "http" if router.servers[name].config.ssl_context_factory is None else "https"
            logger.info("%s port at %s://%s", name, scheme, address_of(sock))
        if not config.worker_tls.verify:
            logger.warning("worker_tls.verify is false: certificates of workers are not checked")
        if not config.workers:
            logger.info("no workers yet: add --worker or POST /workers on the control port")
        await _run(router, config, sockets, stop)


async def _run(
    router: RouterParts,
    config: RouterConfig,
    sockets: Mapping[str, socket.socket],
    stop: StopSignal,
) -> None:
    """Serve until told to stop, then stop in order.

    Raises:
        PartFailedError: a part failed.
    """
    try:
        await _run_parts(router, config, sockets, stop)
    except BaseExceptionGroup as failed:
        of_parts, _ = failed.split(PartFailedError)
        if of_parts is None:
            raise
        raise _first(of_parts) from failed
    logger.info("stopped")


async def _run_parts(
    router: RouterParts,
    config: RouterConfig,
    sockets: Mapping[str, socket.socket],
    stop: StopSignal,
) -> None:
    parts = {
        "the subscriber of events": router.subscriber.run(),
        "the watcher of workers": router.watcher.run(),
        "the bootstrap from siblings": router.bootstrap.run(),
        "the ticker": router.ticker.run(),
        "the watch of files": router.files.run(),
    }
    async with asyncio.TaskGroup() as group:
        background = [group.create_task(_whole(name, part)) for name, part in parts.items()]
        serving = {
            name: group.create_task(server.serve(sockets=[sockets[name]]))
            for name, server in router.servers.items()
        }
        data = router.servers["data"]
        await stop.wait()
        logger.info("stopping: unready, serving on for %g s", config.drain.window_s)
        router.registry.is_draining = True
        await stop.wait_again(config.drain.window_s)
        data.stop()
        cut = group.create_task(_cut(data, stop, config.drain.finish_s))
        await serving["data"]
        for name, server in router.servers.items():
            server.stop()
            await serving[name]
        for task in [cut, *background]:
            task.cancel()


async def _whole(name: str, part: Coroutine[None, None, None]) -> None:
    """A part that runs as long as the router does.

    Raises:
        PartFailedError: it failed.
    """
    try:
        await part
    except Exception as error:  # the supervisor of the parts
        logger.critical("%s failed; the router ends", name, exc_info=error)
        raise PartFailedError(f"{name} failed: {plain(str(error))}") from error


def _first(failed: BaseExceptionGroup[PartFailedError]) -> PartFailedError:
    first = failed.exceptions[0]
    return first if isinstance(first, PartFailedError) else _first(first)


async def _cut(server: PortServer, stop: StopSignal, finish_s: float) -> None:
    """End answers that still run after their time, or at a further signal; then every connection."""
    await stop.wait_again(finish_s)
    server.cut()
    await asyncio.sleep(LAST_WORDS_S)
    server.abort()
