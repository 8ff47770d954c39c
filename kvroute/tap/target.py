"""What ENDPOINT stands for: the event socket of one publisher, or a worker whose sockets are asked for."""

from dataclasses import replace
from urllib.parse import urlsplit

from pydantic import ValidationError

from kvroute.tap.neighbour import Neighbour, port_of_router
from protocol import EventSource, Rank, WorkerId
from protocol.fault_words import fault_words
from router.discovery import is_endpoint
from router.hops import new_hops
from router.plain_text import plain
from router.probe import ProbeError, ProbeTimeouts, open_prober
from router.worker_entry import WorkerEntry

REPLAY_OF_ENGINE = "engine"
_WILDCARDS = ("*", "0.0.0.0", "[::]")


class TargetError(Exception):
    """The endpoint is none. The message says what one looks like."""


class SilentWorkerError(Exception):
    """The worker cannot be reached, or publishes nothing. The message says what to change."""


def endpoint_source(
    endpoint: str, replay: str | None, topic: str, *, is_bound: bool = False
) -> EventSource:
    """The source at a ZeroMQ endpoint.

    Args:
        is_bound: bind the endpoint, for publishers that connect; it may be a wildcard then.

    Raises:
        TargetError: an endpoint is not ``tcp://host:port`` of one machine.
    """
    if replay == REPLAY_OF_ENGINE:
        raise TargetError("--replay engine needs the worker's URL; name tcp://host:port here")
    _require_endpoint("ENDPOINT", endpoint, is_bound=is_bound)
    if replay is not None:
        _require_endpoint("--replay", replay)
    worker = WorkerId(endpoint.removeprefix("tcp://"))
    return EventSource(Rank(worker), endpoint, replay, topic, is_bound)


def worker_entry(url: str) -> WorkerEntry:
    """The worker at a URL.

    Raises:
        TargetError: it is no URL of a worker.
    """
    try:
        return WorkerEntry(url=url)
    except ValidationError as error:
        why = fault_words(error.errors(include_input=False)[0])
        raise TargetError(f"{plain(url)}: {plain(why)}") from error


async def worker_sources(
    entry: WorkerEntry, *, replay: str | None, topic: str | None, token: str | None
) -> tuple[EventSource, ...]:
    """The sources that a worker names, one a rank.

    Args:
        replay: ``engine`` keeps the replay endpoints that it names, None drops them; anything else is the
            one of rank 0.
        topic: in place of the one that it names.

    Raises:
        SilentWorkerError: it cannot be reached or names none.
    """
    url = urlsplit(entry.url)
    kind = None
    if url.scheme == "http" and url.hostname is not None:
        kind = await port_of_router(url.hostname, url.port or 80)
    if kind is not None:
        raise SilentWorkerError(Neighbour(kind).fault(entry.url) or entry.url)
    async with open_prober(ProbeTimeouts(), token, new_hops()) as prober:
        try:
            found = await prober.describe(WorkerId(entry.worker), entry.url)
        except ProbeError as error:
            raise SilentWorkerError(plain(str(error))) from error
    sources = found.spec.sources
    if not sources:
        faults = "; ".join((f"{entry.url} names no event endpoint", *map(plain, found.faults)))
        raise SilentWorkerError(
            f"{faults}. Start the engine with --kv-events-config (publisher zmq, endpoint "
            "tcp://*:5557), or name the endpoint: kvroute tap tcp://HOST:5557"
        )
    if replay == REPLAY_OF_ENGINE and sources[0].replay_endpoint is None:
        raise SilentWorkerError(
            f"{entry.url} names no replay endpoint: set replay_endpoint in its --kv-events-config"
        )
    return tuple(
        replace(
            one,
            topic=one.topic if topic is None else topic,
            replay_endpoint=_replay_endpoint(one, replay),
        )
        for one in sources
    )


def _replay_endpoint(source: EventSource, replay: str | None) -> str | None:
    if replay is None or replay == REPLAY_OF_ENGINE:
        return None if replay is None else source.replay_endpoint
    head, _, port = replay.rpartition(":")
    return f"{head}:{int(port) + source.rank.dp_rank}"


def require_replay(replay: str | None) -> None:
    """Check ``--replay`` beside a worker's URL.

    Raises:
        TargetError: it is neither ``engine`` nor an endpoint.
    """
    if replay is not None and replay != REPLAY_OF_ENGINE:
        _require_endpoint("--replay", replay)


def _require_endpoint(name: str, value: str, *, is_bound: bool = False) -> None:
    if not is_endpoint(value):
        raise TargetError(f"{name}: not tcp://host:port or the http:// URL of a worker: {value!r}")
    host = value.removeprefix("tcp://").rpartition(":")[0]
    if host in _WILDCARDS and not is_bound:
        raise TargetError(f"{name}: {host} is what an engine binds; name its host here")
