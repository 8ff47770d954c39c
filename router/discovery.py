"""Learn what a worker is from its URL alone: model, ranks, block size, tokenizer, event sources.

Pure: reads the answers of the engine's information routes. SGLang says everything in ``/server_info``
(event endpoints in ``kv_events``, else in the flag ``kv_events_config``); vLLM says it in ``/v1/models``, ``/version``, ``/kv_event_sources`` and ``/metrics``. Wildcard hosts in
event endpoints stand for the worker's own. A field of an odd type is taken as absent, a bad value is a
fault that is told, and an engine that says nothing of events is served without them, unless they are named
for it.

Source: SGLang 0.5.23 ``/server_info``; vLLM 0.32.0 routes (recorded).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from indexer.stream_limits import DEFAULT_STREAM_LIMITS
from protocol import EngineKind, EventSource, Rank, WorkerId, WorkerSpec
from router.answer_fields import MAX_BLOCK_SIZE, MAX_LENGTH, AnswerFields, fields_of
from router.engine_capacity import sglang_max_running
from router.engine_metrics import EngineMetrics, EngineReuse, read_metrics
from router.engine_part import part_of
from router.event_topics import topic_of
from router.kv_events_config import ENDPOINT, event_fields
from router.storage_use import sglang_storage

MAX_RANKS = DEFAULT_STREAM_LIMITS.max_dp_rank + 1
"""A worker of more ranks is refused: their events could not be told apart."""
_SGLANG_FIELDS = frozenset(
    {"served_model_name", "model_path", "tokenizer_path", "kv_events", "kv_events_config"}
)


class NotAWorkerError(Exception):
    """The answers do not describe an engine that serves a model. The message says what is missing."""


class PartialEngineError(NotAWorkerError):
    """The engine does a part of the work only. The message says which."""


@dataclass(frozen=True, slots=True)
class WorkerAnswers:
    """What an engine's routes answered, parsed; None where a route does not exist.

    Attributes:
        models: ``/v1/models``.
        server_info: ``/server_info`` or ``/get_server_info``.
        event_sources: ``/kv_event_sources``.
        metrics: ``/metrics``, as text.
        is_sleeping, is_paused: the routes of these names.
    """

    models: object = None
    server_info: object = None
    version: object = None
    event_sources: object = None
    metrics: str | None = None
    is_sleeping: object = None
    is_paused: object = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """A worker as it describes itself.

    Attributes:
        cards: its entries of ``/v1/models``, fit to be shown.
        faults: what it says and could not be taken, each named; the first few.
        num_faults: all of them.
        is_asleep: it says that it sleeps, or is paused: requests would wait until somebody wakes it.
        tells_sleep: it says somewhere whether it does, or is of a kind that may come to say so.
        reuse: by data-parallel rank, what its own counters say.
    """

    spec: WorkerSpec
    cards: tuple[Mapping[str, object], ...] = field(default=())
    is_asleep: bool = False
    faults: tuple[str, ...] = ()
    num_faults: int = 0
    tells_sleep: bool = False
    reuse: Mapping[int, EngineReuse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedEvents:
    """Event endpoints that somebody names for an engine that does not tell its own, or cannot.

    Attributes:
        endpoint: ``tcp://host:port`` of rank 0; further ranks have the ports after it.
        replay_endpoint: likewise; None where there is none.
        topic: may have fields (`topic_of`).
        is_bound: the router binds the endpoint, and the engine connects to it.
    """

    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    is_bound: bool = False


def describe_worker(worker: WorkerId, url: str, answers: WorkerAnswers) -> Discovered:
    """Make a specification from what the engine says.

    Raises:
        PartialEngineError: the engine does a part of the work only.
        NotAWorkerError: no model is named, or there are too many ranks.
    """
    part = part_of(answers.server_info)
    if part is not None:
        raise PartialEngineError(f"the engine is {part} and cannot serve whole requests")
    read = AnswerFields()
    cards = read.cards(answers.models)
    info = fields_of(answers.server_info)
    metrics = read_metrics(answers.metrics or "")
    if is_sglang(info):
        spec = _sglang(worker, url, cards, info, read)
    else:
        spec = _vllm(worker, url, cards, answers, metrics, read)
    has_routes = answers.is_sleeping is not None or answers.is_paused is not None
    return Discovered(
        spec,
        cards,
        metrics.is_asleep or says_asleep(answers.is_sleeping, answers.is_paused),
        tuple(read.faults),
        read.num_faults,
        has_routes or metrics.tells_sleep or spec.engine is EngineKind.VLLM,
        metrics.reuse,
    )


def is_sglang(server_info: object) -> bool:
    """Is it SGLang's ``/server_info``? Any of the fields that routing takes from it tells."""
    return not _SGLANG_FIELDS.isdisjoint(fields_of(server_info))


def says_asleep(is_sleeping: object, is_paused: object) -> bool:
    """What ``/is_sleeping`` and ``/is_paused`` answered, parsed; anything but a plain yes is a no."""
    sleeps = fields_of(is_sleeping).get("is_sleeping") is True
    return sleeps or fields_of(is_paused).get("is_paused") is True


def with_named_events(found: Discovered, named: NamedEvents) -> Discovered:
    """The worker with these event endpoints instead of its own, one a rank while ports last."""
    spec = found.spec
    topic = topic_of(named.topic, spec)
    sources = []
    for rank in spec.ranks:
        reached = _endpoint_of_rank(named.endpoint, rank.dp_rank, spec.url)
        bound = _port_of_rank(named.endpoint, rank.dp_rank)
        replay = _endpoint_of_rank(named.replay_endpoint, rank.dp_rank, spec.url)
        if reached is not None:
            endpoint = bound if named.is_bound else reached
            sources.append(EventSource(rank, endpoint, replay, topic, is_bound=named.is_bound))
    return replace(found, spec=replace(spec, sources=tuple(sources)))


def is_endpoint(value: str) -> bool:
    """Is it ``tcp://host:port``? The host may be a wildcard."""
    return _reachable_endpoint(value, "http://host") is not None


def _sglang(
    worker: WorkerId,
    url: str,
    cards: Sequence[Mapping[str, object]],
    info: Mapping[str, object],
    read: AnswerFields,
) -> WorkerSpec:
    names = _names(cards)
    model = read.text(info.get("served_model_name"), "served_model_name")
    model = model or next(iter(names.models), None)
    path = read.text(info.get("model_path"), "model_path")
    model = model or path
    if model is None:
        raise _no_model("/server_info and /v1/models name no model", read)
    events = event_fields(info, read)
    num_ranks = _count(events.get("dp_size")) or _count(info.get("dp_size")) or 1
    _refuse_too_many(num_ranks)
    storage, threshold = sglang_storage(info, url, model, read)
    return WorkerSpec(
        worker=worker,
        url=url,
        model=model,
        engine=EngineKind.SGLANG,
        version=read.text(info.get("version"), "version"),
        block_size=read.size(events.get("block_size"), "kv_events.block_size", MAX_BLOCK_SIZE)
        or read.size(info.get("page_size"), "page_size", MAX_BLOCK_SIZE),
        tokenizer=read.text(info.get("tokenizer_path"), "tokenizer_path") or path,
        sources=_sglang_sources(worker, url, events, num_ranks, read),
        num_ranks=num_ranks,
        max_model_len=_max_model_len(cards, read)
        or read.size(info.get("context_length"), "context_length", MAX_LENGTH),
        aliases=tuple(name for name in names.models if name != model),
        adapters=names.adapters,
        storage=storage,
        prefetch_threshold=threshold,
        stages_on_host=info.get("hicache_host_memory_mode") == "buffer_only",
        max_running=sglang_max_running(info, num_ranks, read),
    )


def _sglang_sources(
    worker: WorkerId,
    url: str,
    events: Mapping[str, object],
    num_ranks: int,
    read: AnswerFields,
) -> tuple[EventSource, ...]:
    """One a rank: base port plus rank, for both sockets. None at all where one field is bad."""
    if events.get("publisher", "zmq") != "zmq":
        return ()
    before = read.num_faults
    base = read.port(events.get("endpoint_port_base"), "kv_events.endpoint_port_base")
    replay = read.port(
        events.get("replay_endpoint_port_base"), "kv_events.replay_endpoint_port_base"
    )
    host = read.host(events.get("endpoint_host"), "kv_events.endpoint_host")
    topic = read.text(events.get("topic"), "kv_events.topic") or ""
    if max(base or 0, replay or 0) + num_ranks - 1 > 65_535:
        read.fault("kv_events: the ports of the last ranks are beyond 65535")
    if base is None or host is None or read.num_faults > before:
        return ()
    host = _reachable_host(host, url)
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
    worker: WorkerId,
    url: str,
    cards: Sequence[Mapping[str, object]],
    answers: WorkerAnswers,
    metrics: EngineMetrics,
    read: AnswerFields,
) -> WorkerSpec:
    names = _names(cards)
    if not names.models:
        raise _no_model("/v1/models names no model", read)
    model = names.models[0]
    by_rank = _by_rank(answers.event_sources)
    _refuse_too_many(len(metrics.engines))
    ranks = _vllm_ranks([*by_rank, *metrics.engines])
    version = read.text(fields_of(answers.version).get("version"), "version")
    is_vllm = version is not None or answers.event_sources is not None or bool(metrics.engines)
    return WorkerSpec(
        worker=worker,
        url=url,
        model=model,
        engine=EngineKind.VLLM if is_vllm else EngineKind.UNKNOWN,
        version=version,
        block_size=read.size(metrics.block_size, "block_size", MAX_BLOCK_SIZE),
        tokenizer=_root(cards, model, read),
        sources=_vllm_sources(worker, url, by_rank, read),
        num_ranks=len(ranks),
        max_model_len=_max_model_len(cards, read),
        aliases=names.models[1:],
        adapters=names.adapters,
        first_rank=ranks.start,
    )


def _vllm_ranks(names: Iterable[str]) -> range:
    """From the lowest rank that is named to the highest.

    Behind an external or hybrid load balancer an engine serves some ranks of its group only, and names
    them by their numbers in the group, in metrics, event sources and events alike.

    Source: vLLM 0.33.0 (``engine_ranks_managed``).
    """
    told = [rank for rank in map(_dp_rank, names) if rank is not None] or [0]
    return range(min(told), max(told) + 1)


def _vllm_sources(
    worker: WorkerId, url: str, ranks: Mapping[str, object], read: AnswerFields
) -> tuple[EventSource, ...]:
    """One a rank that names its endpoint; a bad entry is a fault and costs only itself."""
    sources: dict[int, EventSource] = {}
    for name, value in ranks.items():
        fields = fields_of(value)
        is_on = fields.get("enable_kv_cache_events", True) is True
        if fields.get("endpoint") is None or not is_on or fields.get("publisher", "zmq") != "zmq":
            continue
        before = read.num_faults
        dp_rank = _dp_rank(name)
        endpoint = _reachable_endpoint(fields["endpoint"], url)
        replay = _reachable_endpoint(fields.get("replay_endpoint"), url)
        topic = read.text(fields.get("topic"), "/kv_event_sources: topic") or ""
        if dp_rank is None or dp_rank in sources:
            read.fault(f"/kv_event_sources: a rank that is no number below {MAX_RANKS}, or twice")
        if endpoint is None or (replay is None and fields.get("replay_endpoint") is not None):
            read.fault("/kv_event_sources: an endpoint that is not tcp://host:port")
        if dp_rank is not None and endpoint is not None and read.num_faults == before:
            sources[dp_rank] = EventSource(Rank(worker, dp_rank), endpoint, replay, topic)
    return tuple(source for _, source in sorted(sources.items()))


def _by_rank(event_sources: object) -> Mapping[str, object]:
    """Rank → fields: as an object by rank, or as an array whose entries name theirs or stand in order."""
    if not isinstance(event_sources, list):
        return fields_of(event_sources)
    named = [fields_of(one).get("data_parallel_rank") for one in event_sources]
    return {
        str(index) if rank is None else _short(rank): one
        for index, (rank, one) in enumerate(zip(named, event_sources, strict=True))
    }


def _short(rank: object) -> str:
    """A rank as a key; what is neither number nor text is none."""
    is_rank = (isinstance(rank, int) and 0 <= rank < MAX_RANKS) or isinstance(rank, str)
    return str(rank) if is_rank else ""


def _dp_rank(name: str) -> int | None:
    """A rank as ASCII digits."""
    is_number = name.isascii() and name.isdigit() and len(name) <= len(str(MAX_RANKS))
    return int(name) if is_number and int(name) < MAX_RANKS else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _refuse_too_many(num_ranks: int) -> None:
    if num_ranks > MAX_RANKS:
        raise NotAWorkerError(
            f"the engine has more data-parallel ranks than can be followed, {MAX_RANKS}"
        )


def _no_model(message: str, read: AnswerFields) -> NotAWorkerError:
    return NotAWorkerError("; ".join([message, *read.faults]))


@dataclass(frozen=True, slots=True)
class _Names:
    models: tuple[str, ...]
    adapters: tuple[str, ...]


def _names(cards: Sequence[Mapping[str, object]]) -> _Names:
    """Cards with a parent are adapters of it; the others name the model, the first one foremost."""
    models: list[str] = []
    adapters: list[str] = []
    for card in cards:
        parent = card.get("parent")
        (adapters if isinstance(parent, str) and parent else models).append(str(card["id"]))
    return _Names(tuple(dict.fromkeys(models)), tuple(dict.fromkeys(adapters)))


def _root(cards: Sequence[Mapping[str, object]], model: str, read: AnswerFields) -> str | None:
    for card in cards:
        if card.get("id") == model:
            return read.text(card.get("root"), "/v1/models: root")
    return None


def _max_model_len(cards: Sequence[Mapping[str, object]], read: AnswerFields) -> int | None:
    for card in cards:
        length = read.size(card.get("max_model_len"), "/v1/models: max_model_len", MAX_LENGTH)
        if length is not None:
            return length
    return None


def _reachable_endpoint(value: object, url: str) -> str | None:
    """The endpoint with its wildcard filled in; None where it is none."""
    found = ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 1 <= int(found.group(2)) <= 65_535:
        return None
    host = AnswerFields().host(found.group(1), "endpoint")
    return None if host is None else f"tcp://{_reachable_host(host, url)}:{found.group(2)}"


def _endpoint_of_rank(base: str | None, dp_rank: int, url: str) -> str | None:
    return None if base is None else _reachable_endpoint(_port_of_rank(base, dp_rank), url)


def _port_of_rank(base: str, dp_rank: int) -> str:
    """The base with the rank's port, which may be none."""
    head, _, port = base.rpartition(":")
    return f"{head}:{int(port) + dp_rank}" if port.isascii() and port.isdigit() else base


def _reachable_host(host: str, url: str) -> str:
    """The host, or the worker's own where it is a wildcard; IPv6 in brackets, as ZeroMQ wants it."""
    if host == "*":
        host = urlsplit(url).hostname or "127.0.0.1"
    return f"[{host}]" if ":" in host else host
