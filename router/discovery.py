"""Learn what a worker is from its URL alone: model, ranks, block size, tokenizer, event sources.

Pure: reads the answers of the engine's information routes. SGLang says everything in ``/server_info``;
vLLM says it in ``/v1/models``, ``/version``, ``/kv_event_sources`` and ``/metrics``. Wildcard hosts in
event endpoints stand for the worker's own. A field of an odd type is taken as absent, and an engine that
says nothing of events is served without them, unless they are named for it.

Source: SGLang 0.5.23 ``/server_info``; vLLM 0.32.0 routes (recorded).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from protocol import EngineKind, EventSource, Rank, WorkerId, WorkerSpec

MAX_RANKS = 1024
_WILDCARDS = frozenset({"", "*", "0.0.0.0", "::", "[::]"})
_BLOCK_SIZE = re.compile(r'cache_config_info\{(?:[^}]*,)?block_size="(\d{1,6})"')
_AWAKE = re.compile(
    r'vllm:engine_sleep_state\{[^}]*sleep_state="awake"[^}]*\} ([01](?:\.0)?)$', re.M
)
_ENDPOINT = re.compile(r"tcp://(.*):(\d{1,5})")


class NotAWorkerError(Exception):
    """The answers do not describe an engine that serves a model. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class WorkerAnswers:
    """What an engine's routes answered, parsed; None where a route does not exist.

    Attributes:
        models: ``/v1/models``.
        server_info: ``/server_info`` or ``/get_server_info``.
        event_sources: ``/kv_event_sources``.
        metrics: ``/metrics``, as text.
    """

    models: object = None
    server_info: object = None
    version: object = None
    event_sources: object = None
    metrics: str | None = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """A worker as it describes itself.

    Attributes:
        cards: its entries of ``/v1/models``.
        is_asleep: it says that it sleeps: requests would wait until somebody wakes it.
    """

    spec: WorkerSpec
    cards: tuple[Mapping[str, object], ...] = field(default=())
    is_asleep: bool = False


@dataclass(frozen=True, slots=True)
class NamedEvents:
    """Event endpoints that somebody names for an engine that does not tell its own.

    Attributes:
        endpoint: ``tcp://host:port`` of rank 0; further ranks have the ports after it.
        replay_endpoint: likewise; None where there is none.
    """

    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""


def describe_worker(worker: WorkerId, url: str, answers: WorkerAnswers) -> Discovered:
    """Make a specification from what the engine says.

    Raises:
        NotAWorkerError: no model is named, or the engine does one half of the work only.
    """
    cards = _cards(answers.models)
    info = _fields(answers.server_info)
    if "served_model_name" in info or "tokenizer_path" in info or "kv_events" in info:
        return Discovered(_sglang(worker, url, cards, info), cards)
    return Discovered(_vllm(worker, url, cards, answers), cards, _is_asleep(answers.metrics or ""))


def with_named_events(found: Discovered, named: NamedEvents) -> Discovered:
    """The worker with these event endpoints instead of its own, one a rank while ports last."""
    spec = found.spec
    sources = []
    for rank in spec.ranks:
        endpoint = _endpoint_of_rank(named.endpoint, rank.dp_rank, spec.url)
        replay = _endpoint_of_rank(named.replay_endpoint, rank.dp_rank, spec.url)
        if endpoint is not None:
            sources.append(EventSource(rank, endpoint, replay, named.topic))
    return replace(found, spec=replace(spec, sources=tuple(sources)))


def is_endpoint(value: str) -> bool:
    """Is it ``tcp://host:port``? The host may be a wildcard."""
    return _reachable_endpoint(value, "http://host") is not None


def _sglang(
    worker: WorkerId, url: str, cards: Sequence[Mapping[str, object]], info: Mapping[str, object]
) -> WorkerSpec:
    names = _names(cards)
    mode = _text(info.get("disaggregation_mode"))
    if mode in ("prefill", "decode"):
        raise NotAWorkerError(
            f"the engine runs in {mode}-only mode and cannot serve whole requests"
        )
    model = _text(info.get("served_model_name")) or next(iter(names.models), None)
    model = model or _text(info.get("model_path"))
    if model is None:
        raise NotAWorkerError("/server_info and /v1/models name no model")
    events = _fields(info.get("kv_events"))
    num_ranks = _rank_count(events.get("dp_size")) or _rank_count(info.get("dp_size")) or 1
    return WorkerSpec(
        worker=worker,
        url=url,
        model=model,
        engine=EngineKind.SGLANG,
        version=_text(info.get("version")),
        block_size=_positive(events.get("block_size")) or _positive(info.get("page_size")),
        tokenizer=_text(info.get("tokenizer_path")) or _text(info.get("model_path")),
        sources=_sglang_sources(worker, url, events, num_ranks),
        num_ranks=num_ranks,
        max_model_len=_max_model_len(cards) or _positive(info.get("context_length")),
        aliases=tuple(name for name in names.models if name != model),
        adapters=names.adapters,
    )


def _sglang_sources(
    worker: WorkerId, url: str, events: Mapping[str, object], num_ranks: int
) -> tuple[EventSource, ...]:
    """One a rank: base port plus rank, for both sockets."""
    base = _port(events.get("endpoint_port_base"))
    if base is None or events.get("publisher", "zmq") != "zmq":
        return ()
    host = _reachable_host(_text(events.get("endpoint_host")) or "*", url)
    replay = _port(events.get("replay_endpoint_port_base"))
    topic = _text(events.get("topic")) or ""
    return tuple(
        EventSource(
            rank=Rank(worker, rank),
            endpoint=f"tcp://{host}:{base + rank}",
            replay_endpoint=None if replay is None else f"tcp://{host}:{replay + rank}",
            topic=topic,
        )
        for rank in range(num_ranks)
    )


def _vllm(
    worker: WorkerId, url: str, cards: Sequence[Mapping[str, object]], answers: WorkerAnswers
) -> WorkerSpec:
    names = _names(cards)
    if not names.models:
        raise NotAWorkerError("/v1/models names no model")
    model = names.models[0]
    sources = _vllm_sources(worker, url, _by_rank(answers.event_sources))
    engines = _engine_labels(answers.metrics or "")
    num_ranks = max([source.rank.dp_rank + 1 for source in sources] + [len(engines), 1])
    version = _text(_fields(answers.version).get("version"))
    is_vllm = version is not None or answers.event_sources is not None or bool(engines)
    return WorkerSpec(
        worker=worker,
        url=url,
        model=model,
        engine=EngineKind.VLLM if is_vllm else EngineKind.UNKNOWN,
        version=version,
        block_size=_metrics_block_size(answers.metrics or ""),
        tokenizer=_root(cards, model),
        sources=sources,
        num_ranks=min(num_ranks, MAX_RANKS),
        max_model_len=_max_model_len(cards),
        aliases=names.models[1:],
        adapters=names.adapters,
    )


def _vllm_sources(
    worker: WorkerId, url: str, ranks: Mapping[str, object]
) -> tuple[EventSource, ...]:
    sources = []
    for name, value in sorted(ranks.items(), key=lambda item: (len(item[0]), item[0])):
        fields = _fields(value)
        endpoint = _reachable_endpoint(fields.get("endpoint"), url)
        is_on = fields.get("enable_kv_cache_events", True) is True
        if not name.isdigit() or int(name) >= MAX_RANKS or endpoint is None or not is_on:
            continue
        if fields.get("publisher", "zmq") != "zmq":
            continue
        replay = _reachable_endpoint(fields.get("replay_endpoint"), url)
        topic = _text(fields.get("topic")) or ""
        sources.append(EventSource(Rank(worker, int(name)), endpoint, replay, topic))
    return tuple(sources)


def _by_rank(event_sources: object) -> Mapping[str, object]:
    """Rank → fields: as an object by rank, or as an array whose entries name theirs or stand in order."""
    if not isinstance(event_sources, list):
        return _fields(event_sources)
    named = [_fields(one).get("data_parallel_rank") for one in event_sources]
    return {
        str(index if rank is None else rank): one
        for index, (rank, one) in enumerate(zip(named, event_sources, strict=True))
    }


@dataclass(frozen=True, slots=True)
class _Names:
    models: tuple[str, ...]
    adapters: tuple[str, ...]


def _names(cards: Sequence[Mapping[str, object]]) -> _Names:
    """Cards with a parent are adapters of it; the others name the model, the first one foremost."""
    models: list[str] = []
    adapters: list[str] = []
    for card in cards:
        name = _text(card.get("id"))
        if name is not None:
            (adapters if _text(card.get("parent")) else models).append(name)
    return _Names(tuple(dict.fromkeys(models)), tuple(dict.fromkeys(adapters)))


def _cards(models: object) -> tuple[Mapping[str, object], ...]:
    data = _fields(models).get("data")
    if not isinstance(data, list):
        return ()
    return tuple(card for card in data if isinstance(card, dict))


def _root(cards: Sequence[Mapping[str, object]], model: str) -> str | None:
    for card in cards:
        if card.get("id") == model:
            return _text(card.get("root"))
    return None


def _max_model_len(cards: Sequence[Mapping[str, object]]) -> int | None:
    lengths = [_positive(card.get("max_model_len")) for card in cards]
    return next((length for length in lengths if length is not None), None)


def _metrics_block_size(metrics: str) -> int | None:
    found = _BLOCK_SIZE.search(metrics)
    return _positive(int(found.group(1))) if found else None


def _is_asleep(metrics: str) -> bool:
    """Does every engine that tells its sleep state say that it is not awake?"""
    awake = _AWAKE.findall(metrics)
    return bool(awake) and not any(float(value) for value in awake)


def _engine_labels(metrics: str) -> set[str]:
    """Data-parallel ranks that report: the ``engine`` labels."""
    lines = (line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running"))
    found = (re.search(r'engine="(\d{1,4})"', line) for line in lines)
    return {match.group(1) for match in found if match}


def _reachable_endpoint(value: object, url: str) -> str | None:
    found = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if found is None or _port(int(found.group(2))) is None:
        return None
    return f"tcp://{_reachable_host(found.group(1), url)}:{found.group(2)}"


def _endpoint_of_rank(base: str | None, dp_rank: int, url: str) -> str | None:
    head, _, port = (base or "").rpartition(":")
    return _reachable_endpoint(f"{head}:{int(port) + dp_rank}", url) if port.isdigit() else None


def _reachable_host(host: str, url: str) -> str:
    """The host, or the worker's own where it is a wildcard; IPv6 in brackets, as ZeroMQ wants it."""
    if host in _WILDCARDS:
        host = urlsplit(url).hostname or "127.0.0.1"
    bare = host.strip("[]")
    return f"[{bare}]" if ":" in bare else bare


def _fields(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _rank_count(value: object) -> int | None:
    count = _positive(value)
    return None if count is None else min(count, MAX_RANKS)


def _port(value: object) -> int | None:
    port = _positive(value)
    return port if port is not None and port <= 65535 else None
