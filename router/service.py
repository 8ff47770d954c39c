"""The router as a process: everything is wired here, once, by hand.

    sockets bound ▶ client pools ▶ brain ▶ tasks ▶ two servers ▶ SIGTERM ▶ drain ▶ stop

One event loop, one owner of all state. At SIGTERM or SIGINT the router turns unready and serves on for
the drain window, then stops accepting, finishes running answers within their bound, and ends. A second
signal cuts both waits short. A part that fails for good ends the process at once, for whoever started it
starts it again: a router without one of its parts would serve on, and wrongly.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from starlette.types import ASGIApp

from indexer.backlog import Backlog
from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.limits import IndexLimits
from indexer.name_lookups import SystemResolver
from indexer.socket_limits import SocketLimits
from indexer.subscriber import EventSubscriber
from prompt import TableLimits, TokenMemo, default_hub_cache
from protocol import WorkerId
from router.bootstrap import Bootstrap, Heirs
from router.config import RouterConfig
from router.configured import (
    connection_limits,
    probe_timeouts,
    reach,
    registry_limits,
    upstream_timeouts,
)
from router.connections import ConnectionGuard
from router.control_app import ControlParts, control_app
from router.counters import DataCounters
from router.data_app import DataApp, DataLimits
from router.dialer import Dialer
from router.engine_tokens import EngineTokens
from router.exchange import Relay
from router.file_limit import raise_file_limit, sockets_within
from router.fleet_debug import FleetDebug
from router.front import client_keys, front_of, server_certificates
from router.hops import new_hops
from router.library_logs import quieten_libraries
from router.metrics import MetricSources
from router.metrics_app import MetricsApp
from router.outages import Outages
from router.plain_text import plain
from router.pool_sources import PoolSources
from router.pool_takeovers import PoolTakeovers
from router.ports import PortServer, address_of, listen, make_server
from router.probe import open_prober
from router.prompt_reader import PromptReader
from router.reach import CheckedNames
from router.registry import Brains, Registry
from router.server_certificate import CertificateWatch
from router.shelf import PromptShelf
from router.sibling import Siblings
from router.stop_signal import StopSignal
from router.ticker import Ticker
from router.tokenize_route import TokenizeRoute, open_tokenize_route
from router.tokenizer_proof import Prover
from router.trials import Trials
from router.upstream import open_upstream
from router.watcher import Watcher, WatchTimes
from scoring import Planner, PlannerLimits

logger = logging.getLogger(__name__)

_READER_THREADS = 2
_LAST_WORDS_S = 2.0  # of answers that are cut


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
        router = await stack.enter_async_context(_router(config))
        for name, sock in sockets.items():
            scheme = "http" if router.servers[name].config.ssl_context_factory is None else "https"
            logger.info("%s port at %s://%s", name, scheme, address_of(sock))
        if not config.worker_tls.verify:
            logger.warning("worker_tls.verify is false: certificates of workers are not checked")
        if not config.workers:
            logger.info("no workers yet: add --worker or POST /workers on the control port")
        await _run(router, config, sockets, stop)


@dataclass(frozen=True, slots=True)
class _Router:
    """The parts that run.

    Attributes:
        servers: of the ports by name, that of ``data`` first.
    """

    registry: Registry
    subscriber: EventSubscriber
    bootstrap: Bootstrap
    watcher: Watcher
    ticker: Ticker
    certificates: CertificateWatch
    servers: Mapping[str, PortServer]


@asynccontextmanager
async def _router(config: RouterConfig) -> AsyncIterator[_Router]:
    """Build every part and tie it to the others."""
    index = FleetIndex(IndexLimits(claims=config.limits.max_claims), config.storage.rules())
    backlog = Backlog(index)
    intake = Intake(backlog)
    sockets = SocketLimits(max_sockets=sockets_within(raise_file_limit()))
    allowed, resolver = reach(config), SystemResolver(sockets.lookup_threads)
    subscriber = EventSubscriber(
        intake,
        time.monotonic,
        limits=sockets,
        backlog=backlog,
        resolve=CheckedNames(allowed, resolver),
    )
    planner = _planner(config, index)
    memo = TokenMemo(TableLimits(config.prompts.memo_bytes))
    shelf, counters = _shelf(config, memo), DataCounters()
    outages, hops = Outages(), new_hops()
    bootstrap = _bootstrap(config, Heirs(index, intake, subscriber))
    brains = Brains(index, planner, intake, subscriber, shelf, bootstrap)
    registry = _registry(config, brains, outages)
    async with AsyncExitStack() as stack:
        stack.callback(resolver.close)
        executor = stack.enter_context(ThreadPoolExecutor(_READER_THREADS, "read"))
        dialer = Dialer(
            asyncio.get_running_loop(),
            config.worker_tls.context(),
            admit=allowed.admitted_addresses,
        )
        upstream = await stack.enter_async_context(open_upstream(upstream_timeouts(config), dialer))
        token = None if config.worker_token is None else config.worker_token.get_secret_value()
        prober = await stack.enter_async_context(
            open_prober(probe_timeouts(config), token, hops, dialer, allowed)
        )
        route = await stack.enter_async_context(
            open_tokenize_route(token, hops, config.timeouts.connect_s, dialer)
        )
        asked, prover = _asking(config, shelf, route, counters)
        times = WatchTimes(config.health.interval_s, config.health.refresh_s)
        watcher = Watcher(registry, shelf, prober, times, Random(), prover=prover)
        reader = PromptReader(
            shelf,
            executor,
            counters,
            asked,
            _takes_ids(config, shelf),
            approximates=config.prompts.approximates,
        )
        relay = Relay(
            planner,
            upstream,
            registry,
            counters,
            config.limits.max_attempts,
            config.names_worker,
            on_trial=Trials(registry, planner).plan,
            outages=outages,
            hops=hops,
        )
        limits = DataLimits(config.limits.max_body_bytes, config.limits.max_in_flight)
        speaking = config.storage.sources()
        takeovers = PoolTakeovers(subscriber, bootstrap, index, speaking.values())
        pools = PoolSources(speaking, index, takeovers, intake.is_connected)
        parts = {
            "registry": registry.tick,
            "planner": planner.tick,
            "index": index.tick,
            "pools": pools.tick,
            "pools of siblings": takeovers.tick,
        }
        ticker = Ticker(parts)
        keys = client_keys(config, time.monotonic())
        certificates = server_certificates(config)
        guards = {port: ConnectionGuard(connection_limits(config)) for port in config.addresses()}
        metrics = MetricSources(
            counters,
            planner,
            index,
            intake,
            subscriber,
            registry,
            ticker,
            connections=guards,
            pools=pools,
            memo=memo,
            shelf=shelf,
            keys=keys,
            certificates=certificates,
            reach=allowed,
        )
        control = ControlParts(
            fleet=FleetDebug(registry, index, intake, planner, shelf, pools=pools),
            metrics=metrics,
            reader=reader,
            executor=executor,
            workers_changed=watcher.wake,
            token=None if config.control_token is None else config.control_token.get_secret_value(),
            max_body_bytes=config.limits.max_body_bytes,
            reach=allowed,
        )
        data_app = DataApp(relay, reader, registry, counters, limits)
        apps: dict[str, ASGIApp] = {
            "data": front_of(data_app, keys, config.cors),
            "control": control_app(control),
            "metrics": MetricsApp(metrics, executor),
        }
        grace_s = {"data": config.drain.finish_s + 2 * _LAST_WORDS_S}
        yield _Router(
            registry,
            subscriber,
            bootstrap,
            watcher,
            ticker,
            CertificateWatch(certificates),
            {
                name: make_server(
                    apps[name],
                    guard,
                    grace_s=grace_s.get(name, 1.0),
                    tls=certificates[name].context if name in certificates else None,
                )
                for name, guard in guards.items()
            },
        )


async def _run(
    router: _Router,
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
    router: _Router,
    config: RouterConfig,
    sockets: Mapping[str, socket.socket],
    stop: StopSignal,
) -> None:
    parts = {
        "the subscriber of events": router.subscriber.run(),
        "the watcher of workers": router.watcher.run(),
        "the bootstrap from siblings": router.bootstrap.run(),
        "the ticker": router.ticker.run(),
        "the watch of certificates": router.certificates.run(),
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
    await asyncio.sleep(_LAST_WORDS_S)
    server.abort()


def _shelf(config: RouterConfig, memo: TokenMemo) -> PromptShelf:
    cache = config.prompts.hub_cache or default_hub_cache(os.environ, Path.home())
    return PromptShelf(
        config.tokenizers,
        config.tokenizer_backend,
        hub_cache=cache,
        memo=memo,
        approximates=config.prompts.approximates,
    )


def _asking(
    config: RouterConfig, shelf: PromptShelf, route: TokenizeRoute, counters: DataCounters
) -> tuple[EngineTokens | None, Prover | None]:
    """Who asks engines for tokens, and who compares them; nobody where that is not wanted."""
    if not config.prompts.asks_engines:
        return None, None
    timeout_s = config.prompts.ask_timeout_s
    return EngineTokens(shelf, route, counters, timeout_s), Prover(route, timeout_s)


def _takes_ids(config: RouterConfig, shelf: PromptShelf) -> Callable[[str | None], bool] | None:
    return shelf.is_proved_vllm if config.prompts.sends_token_ids else None


def _planner(config: RouterConfig, index: FleetIndex) -> Planner:
    return Planner(
        index,
        policy=config.policy,
        engine_model=config.engine.model(),
        configured=config.engine.configured(),
        rng=Random(),
        limits=PlannerLimits(max_workers=config.limits.max_workers),
    )


def _registry(config: RouterConfig, brains: Brains, outages: Outages) -> Registry:
    """The registry, with every worker that the configuration lists."""
    events = None if config.events is None else config.events.named()
    registry = Registry(brains, registry_limits(config), outages, events)
    now = time.monotonic()
    for entry in config.workers:
        worker, named = WorkerId(entry.worker), entry.named_events()
        registry.add(worker, entry.url, now, named, entry.named_pool())
    return registry


def _bootstrap(config: RouterConfig, heirs: Heirs) -> Bootstrap:
    chosen = config.bootstrap
    token = None if chosen.token is None else chosen.token.get_secret_value()
    dumps = Siblings(token, chosen.timeout_s, config.worker_tls.context())
    return Bootstrap(heirs, dumps, chosen.siblings, chosen.timeout_s, time.monotonic)
