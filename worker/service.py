"""A worker as a service: build it, serve it until a signal, take it down in order."""

import asyncio
import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from prompt import PromptModel, bundled_model_dir
from protocol import EngineKind
from worker.app import build_app
from worker.batch_log import BatchLog
from worker.config import DIRECTORY_PREFIX, WorkerConfig
from worker.engine import Engine
from worker.event_sockets import EventAddress, EventSockets
from worker.flavour import Flavour
from worker.mooncake_address import MOONCAKE_PREFIX, MooncakeAddress
from worker.mooncake_client import open_mooncake
from worker.publisher import EventPublisher
from worker.rank import RankRunner
from worker.ranks import RankSet
from worker.remote_storage import RemoteStorage
from worker.server_info import WorkerIdentity
from worker.storage import DirectoryStorage, MemoryStorage, Storage
from worker.vocabulary import Vocabulary, vocabulary_of

logger = logging.getLogger(__name__)

_GRACE_S = 2


class StorageUnusableError(Exception):
    """There can be no such storage here. The message names it and says why."""


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker whose ranks run: its application, to be served, and what it is made of."""

    app: FastAPI
    identity: WorkerIdentity
    ranks: RankSet


async def serve_worker(
    config: WorkerConfig,
    *,
    storage: Storage | None = None,
    model: PromptModel | None = None,
    on_ready: Callable[[int], None] | None = None,
) -> None:
    """Serve one worker until SIGTERM or SIGINT.

    After the signal nothing new is taken; what runs gets ``drain_s`` to end and is cut then.

    Args:
        storage, model: shared with other workers of this process; None = what the configuration names.
        on_ready: called with the HTTP port once it is served.

    Raises:
        PromptModelError: the tokenizer directory cannot be used.
        StorageUnusableError: the storage's directory cannot be used.
        OSError: an address is taken or cannot be bound, or a store cannot be reached.
    """
    with contextlib.closing(_listen(config)) as listener:
        port: int = listener.getsockname()[1]
        async with running_worker(config, port, storage=storage, model=model) as worker:
            server = _Server(worker.app, lambda: _announce(config, port, on_ready), config.drain_s)
            with _stopped_by_signals(server, worker.ranks, config.drain_s):
                await server.serve([listener])


@asynccontextmanager
async def running_worker(
    config: WorkerConfig,
    port: int,
    *,
    storage: Storage | None = None,
    model: PromptModel | None = None,
) -> AsyncIterator[RunningWorker]:
    """A worker with its ranks running and its events published, without an HTTP server.

    Args:
        port: where its application will be heard, for ``/server_info``.

    Raises:
        PromptModelError, StorageUnusableError, OSError: see ``serve_worker``.
    """
    tokenizer = config.tokenizer or bundled_model_dir()
    if model is None:
        model = await asyncio.to_thread(PromptModel.load, tokenizer)
    if config.engine is Flavour.SGLANG:
        model = model.for_engines({EngineKind.SGLANG}, follows_sglang=True)
    vocabulary = await asyncio.to_thread(vocabulary_of, model)
    async with contextlib.AsyncExitStack() as stack:
        sockets = stack.enter_context(contextlib.closing(EventSockets(_event_address(config))))
        if storage is None:
            try:
                storage = await _open_storage(config, stack)
            except OSError as error:
                if error.strerror is None:  # a store's server cannot be reached: it says so itself
                    raise
                why = f"{config.storage}: {error.strerror.lower()}"
                raise StorageUnusableError(why) from error
        ranks = _build_ranks(config, vocabulary, sockets, storage)
        identity = WorkerIdentity(
            config.model_copy(update={"port": port}),
            tokenizer,
            sockets.events_port,
            sockets.replay_port,
            int(time.time()),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runner.run()) for runner in ranks]
            tasks += [
                group.create_task(runner.publisher.serve_replays())
                for runner in ranks
                if runner.publisher is not None
            ]
            if isinstance(storage, RemoteStorage):
                tasks.append(group.create_task(storage.run()))
            yield RunningWorker(build_app(identity, model, vocabulary, ranks), identity, ranks)
            for task in tasks:
                task.cancel()


def _build_ranks(
    config: WorkerConfig, vocabulary: Vocabulary, sockets: EventSockets, storage: Storage | None
) -> RankSet:
    runners = []
    for dp_rank in range(config.dp_size):
        publisher = None
        if sockets.ranks:
            dialect = config.release if config.engine is Flavour.VLLM else None
            log = BatchLog(dp_rank, config.topic, config.buffer_steps, dialect)
            publisher = EventPublisher(log, sockets.ranks[dp_rank], time.time)
        engine = Engine(config.engine_settings(), vocabulary.sampler, storage)
        runners.append(RankRunner(dp_rank, engine, publisher, time.monotonic, config.speed))
    return RankSet(runners, storage)


async def _open_storage(config: WorkerConfig, stack: contextlib.AsyncExitStack) -> Storage | None:
    """The storage that is configured; what has to be left in order is left with ``stack``."""
    if config.storage == "none":
        return None
    if config.storage == "memory":
        return MemoryStorage(config.storage_pages)
    if config.storage.startswith(MOONCAKE_PREFIX):
        address = MooncakeAddress.parse(config.storage)
        remote = RemoteStorage(await asyncio.to_thread(open_mooncake, address))
        stack.push_async_callback(remote.close)
        return remote
    directory = Path(config.storage.removeprefix(DIRECTORY_PREFIX))
    return DirectoryStorage(directory, config.storage_pages)


def _event_address(config: WorkerConfig) -> EventAddress:
    return EventAddress(
        config.host,
        config.events_port,
        config.replay_port,
        config.dp_size,
        config.buffer_steps,
        config.events_hwm,
    )


def _listen(config: WorkerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    return socket.create_server((config.host, config.port), family=family, backlog=1024)


def _announce(config: WorkerConfig, port: int, on_ready: Callable[[int], None] | None) -> None:
    logger.info("worker %s is ready at http://%s:%d", config.model_name, config.host, port)
    if on_ready is not None:
        on_ready(port)


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to its caller and tells when it serves."""

    def __init__(self, app: FastAPI, on_started: Callable[[], None], drain_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=math.ceil(drain_s) + _GRACE_S,
            )
        )
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and tell."""
        await super().startup(sockets)
        self._on_started()


@contextmanager
def _stopped_by_signals(server: uvicorn.Server, ranks: RankSet, drain_s: float) -> Iterator[None]:
    """The first signal stops the server; a second one hurries no more than that."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True
        loop.call_later(drain_s, ranks.cut_answers)

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
