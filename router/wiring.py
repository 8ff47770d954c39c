"""Everything that a router is made of, wired once, by hand.

names ▶ event sockets ▶ index ─┐
engines ◀ client pools ─────────┼▶ planner, registry, shelf ▶ relay, reader ▶ apps ▶ servers
configuration ──────────────────┘
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pydantic import SecretStr
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
    data_limits,
    probe_timeouts,
    reach,
    registry_limits,
    upstream_timeouts,
)
from router.connections import ConnectionGuard
from router.control_app import ControlParts, control_app
from router.counters import DataCounters
from router.data_app import DataApp
from router.dialer import Dialer
from router.engine_tokens import EngineTokens
from router.file_limit import raise_file_limit, sockets_within
from router.file_watch import FileWatch
from router.fleet_debug import FleetDebug
from router.front import (
    client_keys,
    front_of,
    key_file,
    observed,
    server_certificates,
    watched_files,
)
from router.hang_up import HangUp
from router.hops import Hops, new_hops
from router.keepers import Keepers
from router.made_ids import MadeIds
from router.metrics import MetricSources
from router.metrics_app import MetricsApp
from router.outages import Outages
from router.pool_sources import PoolSources
from router.pool_takeovers import PoolTakeovers
from router.ports import PortServer, make_server
from router.probe import Prober, open_prober
from router.prompt_reader import PromptReader
from router.reach import CheckedNames, Reach
from router.registry import Brains, Registry
from router.relay import Relay
from router.retry_budget import RetryBudget
from router.server_certificate import ServerCertificate
from router.shelf import PromptShelf
from router.sibling import Siblings
from router.ticker import Ticker
from router.tokenize_route import TokenizeRoute, open_tokenize_route
from router.tokenizer_proof import Prover
from router.trials import Trials
from router.upstream import Upstream, open_upstream
from router.waiting_queue import WaitingQueue
from router.watcher import Watcher, WatchTimes
from router.watching import open_watching
from scoring import Planner, PlannerLimits

_READER_THREADS = 2
LAST_WORDS_S = 2.0
"""That answers which are cut get to say so."""


@dataclass(frozen=True, slots=True)
class RouterParts:
    """The parts that run.

    Attributes:
        servers: of the ports by name, that of ``data`` first.
    """

    registry: Registry
    subscriber: EventSubscriber
    bootstrap: Bootstrap
    watcher: Watcher
    ticker: Ticker
    files: FileWatch
    servers: Mapping[str, PortServer]


@dataclass(frozen=True, slots=True)
class _Core:
    """What knows, decides and counts: all that needs no connection to an engine."""

    index: FleetIndex
    intake: Intake
    subscriber: EventSubscriber
    planner: Planner
    queue: WaitingQueue
    memo: TokenMemo
    shelf: PromptShelf
    bootstrap: Bootstrap
    registry: Registry
    outages: Outages
    counters: DataCounters
    retries: RetryBudget


@asynccontextmanager
async def wired(config: RouterConfig) -> AsyncIterator[RouterParts]:
    """Build every part and tie it to the others; what has to be closed is closed at the end."""
    async with AsyncExitStack() as stack:
        allowed, hops = reach(config), new_hops()
        num_files = raise_file_limit()
        of_port = connection_limits(config, num_files)
        core = _core(config, allowed, num_files, stack)
        registry, shelf = core.registry, core.shelf
        executor = stack.enter_context(ThreadPoolExecutor(_READER_THREADS, "read"))
        upstream, prober, route = await _callers(config, allowed, hops, stack)
        asked, prover = _asking(config, shelf, route, core.counters)
        times = WatchTimes(config.health.interval_s, config.health.refresh_s)
        watcher = Watcher(registry, shelf, prober, times, Random(), prover=prover)
        reader = _reader(config, core, executor, asked)
        speaking = config.storage.sources()
        takeovers = PoolTakeovers(core.subscriber, core.bootstrap, core.index, speaking.values())
        pools = PoolSources(speaking, core.index, takeovers, core.intake.is_connected)
        ticker = _ticker(core, pools, takeovers)
        keys = client_keys(config, time.monotonic())
        keys_from, certificates = key_file(config, keys), server_certificates(config)
        guards = {port: ConnectionGuard(of_port) for port in config.addresses()}
        hang_up = HangUp()
        watching = await stack.enter_async_context(
            open_watching(config.access_log, config.tracing, hang_up)
        )
        keepers = Keepers(MadeIds(), registry)
        relay = _relay(config, core, upstream, hops)
        data_app = DataApp(relay, reader, registry, core.counters, data_limits(config), keepers)
        metrics = MetricSources(
            core.counters,
            core.planner,
            core.index,
            core.intake,
            core.subscriber,
            registry,
            ticker,
            connections=guards,
            pools=pools,
            memo=core.memo,
            made=keepers.made,
            shelf=shelf,
            keys=keys,
            key_file=keys_from,
            certificates=certificates,
            reach=allowed,
            watching=watching,
            upstream=upstream,
            retries=core.retries,
            queue=core.queue,
            bodies=data_app.room,
        )
        control = ControlParts(
            fleet=FleetDebug(registry, core.index, core.intake, core.planner, shelf, pools=pools),
            metrics=metrics,
            reader=reader,
            executor=executor,
            workers_changed=watcher.wake,
            token=_secret(config.control_token),
            max_body_bytes=config.limits.max_body_bytes,
            reach=allowed,
            why_partial=prober.why_partial,
        )
        apps: dict[str, ASGIApp] = {
            "data": observed(
                front_of(data_app, keys, config.cors), watching.observers, guards["data"]
            ),
            "control": control_app(control),
            "metrics": MetricsApp(metrics, executor),
        }
        yield RouterParts(
            registry,
            core.subscriber,
            core.bootstrap,
            watcher,
            ticker,
            FileWatch(watched_files(certificates, keys_from), hang_up),
            _servers(config, apps, guards, certificates),
        )


def _core(config: RouterConfig, allowed: Reach, num_files: int, stack: AsyncExitStack) -> _Core:
    """The brain, and what tells it of workers."""
    index, intake, subscriber = _events(config, allowed, num_files, stack)
    planner, queue = _planner(config, index), WaitingQueue(config.queue.limits())
    planner.bound(config.queue.capacity(), queue)
    memo, outages = TokenMemo(TableLimits(config.prompts.memo_bytes)), Outages()
    shelf = _shelf(config, memo)
    bootstrap = _bootstrap(config, Heirs(index, intake, subscriber))
    brains = Brains(index, planner, intake, subscriber, shelf, bootstrap)
    return _Core(
        index,
        intake,
        subscriber,
        planner,
        queue,
        memo,
        shelf,
        bootstrap,
        _registry(config, brains, outages),
        outages,
        DataCounters(),
        RetryBudget(config.retries.limits()),
    )


def _relay(config: RouterConfig, core: _Core, upstream: Upstream, hops: Hops) -> Relay:
    return Relay(
        core.planner,
        upstream,
        core.registry,
        core.counters,
        config.limits.max_attempts,
        config.names_worker,
        on_trial=Trials(core.registry, core.planner).plan,
        outages=core.outages,
        hops=hops,
        retries=core.retries,
        queue=core.queue,
    )


def _reader(
    config: RouterConfig, core: _Core, executor: ThreadPoolExecutor, asked: EngineTokens | None
) -> PromptReader:
    return PromptReader(
        core.shelf,
        executor,
        core.counters,
        asked,
        _takes_ids(config, core.shelf),
        approximates=config.prompts.approximates,
    )


def _ticker(core: _Core, pools: PoolSources, takeovers: PoolTakeovers) -> Ticker:
    return Ticker(
        {
            "registry": core.registry.tick,
            "planner": core.planner.tick,
            "index": core.index.tick,
            "pools": pools.tick,
            "pools of siblings": takeovers.tick,
        }
    )


def _events(
    config: RouterConfig, allowed: Reach, num_files: int, stack: AsyncExitStack
) -> tuple[FleetIndex, Intake, EventSubscriber]:
    """From the event sockets to the index."""
    index = FleetIndex(IndexLimits(claims=config.limits.max_claims), config.storage.rules())
    backlog = Backlog(index)
    intake = Intake(backlog)
    limits = SocketLimits(max_sockets=sockets_within(num_files))
    resolver = SystemResolver(limits.lookup_threads)
    stack.callback(resolver.close)
    subscriber = EventSubscriber(
        intake,
        time.monotonic,
        limits=limits,
        backlog=backlog,
        resolve=CheckedNames(allowed, resolver),
    )
    return index, intake, subscriber


async def _callers(
    config: RouterConfig, allowed: Reach, hops: Hops, stack: AsyncExitStack
) -> tuple[Upstream, Prober, TokenizeRoute]:
    """All that connect to engines: for requests, for probes, and for tokens."""
    dialer = Dialer(
        asyncio.get_running_loop(), config.worker_tls.context(), admit=allowed.admitted_addresses
    )
    token = _secret(config.worker_token)
    upstream = await stack.enter_async_context(open_upstream(upstream_timeouts(config), dialer))
    prober = await stack.enter_async_context(
        open_prober(probe_timeouts(config), token, hops, dialer, allowed)
    )
    route = await stack.enter_async_context(
        open_tokenize_route(token, hops, config.timeouts.connect_s, dialer)
    )
    return upstream, prober, route


def _servers(
    config: RouterConfig,
    apps: Mapping[str, ASGIApp],
    guards: Mapping[str, ConnectionGuard],
    certificates: Mapping[str, ServerCertificate],
) -> dict[str, PortServer]:
    """One a port that is configured. Answers get their time to end, and to be told that they are cut."""
    grace_s = {"data": config.drain.finish_s + 2 * LAST_WORDS_S}
    return {
        name: make_server(
            apps[name],
            guard,
            grace_s=grace_s.get(name, 1.0),
            tls=certificates[name].context if name in certificates else None,
        )
        for name, guard in guards.items()
    }


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


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
        pool, bound = entry.named_pool(), entry.max_in_flight
        registry.add(worker, entry.url, now, named, pool, bound)
    return registry


def _bootstrap(config: RouterConfig, heirs: Heirs) -> Bootstrap:
    chosen = config.bootstrap
    token = _secret(chosen.token)
    dumps = Siblings(token, chosen.timeout_s, config.worker_tls.context())
    return Bootstrap(heirs, dumps, chosen.siblings, chosen.timeout_s, time.monotonic)
