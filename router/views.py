"""What the control port shows, as models: names and units here are what users and tests rely on."""

from collections.abc import Mapping
from dataclasses import asdict

from pydantic import BaseModel, ConfigDict, Field

from indexer.findings import Finding
from indexer.rank_state import IndexStats, RankState
from indexer.stream_status import StreamStatus
from protocol import EventSource, Rank, Tier, WorkerSpec
from router.breaker import BreakerState
from router.pool_views import PoolSourceView, PoolView
from router.shelf import Rung, Shelved
from router.worker_record import WorkerRecord, WorkerState
from scoring import RankLoad


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class RefusedView(_View):
    """Why a call was refused."""

    detail: str


class ErrorDetailView(_View):
    """An error as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorView(_View):
    """What the data port would answer in place of a request's answer."""

    error: ErrorDetailView


class NewEvents(BaseModel):
    """Event endpoints of a new worker, in place of those that the engine tells: those of rank 0.

    One of ``endpoint`` and ``listen`` is given.
    """

    model_config = ConfigDict(extra="forbid")

    endpoint: str | None = None
    listen: str | None = None
    replay_endpoint: str | None = None
    topic: str = ""


class NewWorker(BaseModel):
    """Body of ``POST /workers``: the fields of a worker in the configuration file."""

    model_config = ConfigDict(extra="forbid")

    url: str
    name: str | None = None
    events: NewEvents | None = None
    storage_pool: str | None = None
    max_in_flight: int | None = None


class WorkerChange(BaseModel):
    """Body of ``PATCH /workers/{id}``."""

    model_config = ConfigDict(extra="forbid")

    draining: bool = Field(strict=True)


class WorkerView(_View):
    """One worker in short."""

    worker: str
    url: str
    state: WorkerState
    model: str | None
    engine: str | None
    version: str | None
    num_ranks: int | None
    block_size: int | None
    max_model_len: int | None
    aliases: tuple[str, ...]
    adapters: tuple[str, ...]
    storage_pool: str | None
    draining: bool
    error: str | None


class PromptModelView(_View):
    """Where a worker's tokenizer comes from; ``detail`` says why there is none."""

    rung: Rung
    backend: str | None
    directory: str | None
    detail: str | None


class StreamView(_View):
    """One rank's event stream. ``last_seq`` is the last batch that is accounted for.

    Attributes:
        is_bound: the router listens at the endpoint, and the engine connects to it.
        lag_s: publication to application of the last batch that was not replayed, by the clocks of both machines.
        last_event_age_s: since a batch was last applied.
        last_loss: numbers of the batches that were last lost for good, or read in part only, and why;
            ``last_seq`` null where nobody knows how many.
        counters: everything that happened on it, by name.
    """

    endpoint: str
    replay_endpoint: str | None
    is_bound: bool
    is_connected: bool
    last_seq: int | None
    held_batches: int
    lag_s: float | None
    last_event_age_s: float | None
    last_loss: Mapping[str, int | str | None] | None
    counters: Mapping[str, object]


class RankView(_View):
    """One rank: what it is known to hold, how far that can be believed, what it is busy with."""

    dp_rank: int
    trust: str
    block_size: int
    gpu_blocks: int
    host_pinned_blocks: int
    storage_blocks: int
    observed_blocks: int
    predicted_blocks: int
    doubtful_blocks: int
    parked_blocks: int
    unnamed_blocks: int
    duplicate_stores: Mapping[str, int]
    unknown_removals: Mapping[str, int]
    skips: Mapping[str, int]
    in_flight: int
    max_in_flight: int | None
    queued_prefill_tokens: int
    decode_requests: int
    last_seq: int | None
    stream: StreamView | None


class WorkerDebugView(WorkerView):
    """One worker in full.

    Attributes:
        faults: what it says of itself and could not be taken, the first few.
        num_faults: all of them.
    """

    breaker: BreakerState
    health_failures: int
    learn_attempts: int
    faults: tuple[str, ...]
    num_faults: int
    prompt_model: PromptModelView
    ranks: tuple[RankView, ...]


class RankNameView(_View):
    """A rank by name."""

    worker: str
    dp_rank: int


class FindingView(_View):
    """A gap in what the router can know, with what to change. ``age_s``: since it was first seen."""

    kind: str
    age_s: float
    ranks: tuple[RankNameView, ...]
    evidence: Mapping[str, int | float | str]
    advice: str


class IndexView(_View):
    """The index as a whole.

    Attributes:
        held: hashes held on any tier of any rank, named or not, of at most ``max_held``.
        unswept: blocks of claims that were dropped at once, to be cleaned up.
        pools: storage that workers share.
        pool_sources: how pools that publish events of their own are heard.
    """

    workers: int
    ranks: int
    key_spaces: int
    blocks: int
    gpu_claims: int
    host_pinned_claims: int
    storage_claims: int
    held: int
    max_held: int
    unswept: int
    observed: int
    predicted: int
    doubtful: int
    parked: int
    skips: Mapping[str, int]
    pools: tuple[PoolView, ...]
    pool_sources: tuple[PoolSourceView, ...]


class ReadyView(_View):
    """Is the router ready, and what is it waiting for?"""

    is_ready: bool
    detail: str


def worker_view(record: WorkerRecord) -> WorkerView:
    """A worker in short."""
    return WorkerView.model_validate(_worker_fields(record))


def worker_debug_view(
    record: WorkerRecord, shelved: Shelved, ranks: tuple[RankView, ...]
) -> WorkerDebugView:
    """A worker in full."""
    backend = None if shelved.model is None else shelved.model.backend
    prompt_model = PromptModelView(
        rung=shelved.rung, backend=backend, directory=shelved.directory, detail=shelved.detail
    )
    more = {
        "breaker": record.breaker.state,
        "health_failures": record.health.num_failures,
        "learn_attempts": record.num_attempts,
        "faults": () if record.discovered is None else record.discovered.faults,
        "num_faults": 0 if record.discovered is None else record.discovered.num_faults,
        "prompt_model": prompt_model,
        "ranks": ranks,
    }
    return WorkerDebugView.model_validate(_worker_fields(record) | more)


def rank_view(state: RankState, load: RankLoad | None, stream: StreamView | None) -> RankView:
    """A rank as index, planner and stream see it."""
    return RankView(
        dp_rank=state.rank.dp_rank,
        trust=state.trust,
        block_size=state.block_size,
        gpu_blocks=state.blocks.get(Tier.GPU, 0),
        host_pinned_blocks=state.blocks.get(Tier.HOST, 0),
        storage_blocks=state.blocks.get(Tier.STORAGE, 0),
        observed_blocks=state.observed,
        predicted_blocks=state.predicted,
        doubtful_blocks=state.doubtful,
        parked_blocks=state.orphans,
        unnamed_blocks=state.unnamed,
        duplicate_stores=by_tier(state.duplicates),
        unknown_removals=by_tier(state.unknown_removals),
        skips={str(reason): count for reason, count in state.skips.items()},
        in_flight=0 if load is None else load.in_flight,
        max_in_flight=None if load is None else load.max_in_flight,
        queued_prefill_tokens=0 if load is None else load.queued_prefill_tokens,
        decode_requests=0 if load is None else load.decode_requests,
        last_seq=None if stream is None else stream.last_seq,
        stream=stream,
    )


def stream_view(
    status: StreamStatus, source: EventSource | None, now: float, wall_offset_s: float
) -> StreamView:
    """A stream; ``wall_offset_s`` is wall clock minus monotonic clock."""
    lag_s, last = status.lag_s(wall_offset_s), status.last_event_at
    return StreamView(
        endpoint="" if source is None else source.endpoint,
        replay_endpoint=None if source is None else source.replay_endpoint,
        is_bound=source is not None and source.is_bound,
        is_connected=status.is_connected,
        last_seq=status.last_seq,
        held_batches=status.held_batches,
        lag_s=None if lag_s is None else round(lag_s, 6),
        last_event_age_s=None if last is None else round(now - last, 6),
        last_loss=None if status.last_loss is None else asdict(status.last_loss),
        counters=asdict(status.counters),
    )


def silent_stream_view(source: EventSource, *, is_connected: bool) -> StreamView:
    """A stream that nothing has been heard of yet."""
    return StreamView(
        endpoint=source.endpoint,
        replay_endpoint=source.replay_endpoint,
        is_bound=source.is_bound,
        is_connected=is_connected,
        last_seq=None,
        held_batches=0,
        lag_s=None,
        last_event_age_s=None,
        last_loss=None,
        counters={},
    )


def finding_view(finding: Finding, now: float) -> FindingView:
    """A finding."""
    return FindingView(
        kind=finding.kind,
        age_s=round(now - finding.since, 3),
        ranks=tuple(_rank_name(rank) for rank in finding.ranks),
        evidence=finding.evidence,
        advice=finding.advice,
    )


def index_view(
    stats: IndexStats, pools: tuple[PoolView, ...], pool_sources: tuple[PoolSourceView, ...]
) -> IndexView:
    """The index's totals."""
    return IndexView(
        workers=stats.workers,
        ranks=stats.ranks,
        key_spaces=stats.key_spaces,
        blocks=stats.blocks,
        gpu_claims=stats.claims.get(Tier.GPU, 0),
        host_pinned_claims=stats.claims.get(Tier.HOST, 0),
        storage_claims=stats.claims.get(Tier.STORAGE, 0),
        held=stats.held,
        max_held=stats.max_held,
        unswept=stats.unswept,
        observed=stats.observed,
        predicted=stats.predicted,
        doubtful=stats.doubtful,
        parked=stats.orphans,
        skips={str(reason): count for reason, count in stats.skips.items()},
        pools=pools,
        pool_sources=pool_sources,
    )


def by_tier(counts: Mapping[Tier, int]) -> dict[str, int]:
    """Counts under the names that tiers have in decisions."""
    return {TIER_NAMES[tier]: count for tier, count in counts.items()}


TIER_NAMES = {Tier.GPU: "gpu", Tier.HOST: "host_pinned", Tier.STORAGE: "storage"}


def _worker_fields(record: WorkerRecord) -> dict[str, object]:
    spec = record.spec
    return {
        "worker": record.worker,
        "url": record.url,
        "state": record.state,
        "model": spec and spec.model,
        "engine": spec and spec.engine.value,
        "version": spec and spec.version,
        "num_ranks": spec and spec.num_ranks,
        "block_size": spec and spec.block_size,
        "max_model_len": spec and spec.max_model_len,
        "aliases": spec.aliases if spec else (),
        "adapters": spec.adapters if spec else (),
        "storage_pool": spec and _pool_label(spec),
        "draining": record.is_draining,
        "error": record.trouble,
    }


def _pool_label(spec: WorkerSpec) -> str | None:
    """The pool that the worker shares, as it is shown; None where it is not known to share one."""
    return spec.storage.pool.label if spec.storage and spec.storage.pool.is_shared else None


def _rank_name(rank: Rank) -> RankNameView:
    return RankNameView(worker=rank.worker, dp_rank=rank.dp_rank)
