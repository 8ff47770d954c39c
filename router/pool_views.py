"""What the control port shows of storage pools."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from indexer.pool_book import PoolState
from indexer.trust import Trust
from router.pool_sources import HeardPool, PoolEar


class PoolView(BaseModel):
    """One storage pool that workers share.

    Attributes:
        pool: a short name that no other pool has.
        name: the operator's; null for a pool that engines tell of alone.
        ranks: those that can fetch what it holds, as worker/dp_rank.
        blocks: by what they rest on; the announced ones of each rank count.
        trust: of the pool's own events; null where none are heard.
        unnamed_blocks: those that its events name by hashes which no rank has published.
        contradicted_blocks: inferred ones that were dropped because a report fell short of them.
        skips: events and blocks that made no claim, by reason.
    """

    model_config = ConfigDict(frozen=True)

    pool: str
    name: str | None
    backend: str | None
    address: str | None
    model: str
    layout: str
    ranks: tuple[str, ...]
    blocks: Mapping[str, int]
    trust: str | None
    unnamed_blocks: int
    contradicted_blocks: int
    skips: Mapping[str, int]


class PoolSourceView(BaseModel):
    """How one pool of `storage.pools` is heard.

    Attributes:
        pool: its name in the configuration.
        state: ``unused`` (no worker that was learned shares it), ``connecting`` or ``connected``.
        age_s: for how long.
    """

    model_config = ConfigDict(frozen=True)

    pool: str
    endpoint: str
    state: PoolEar
    age_s: float


def pool_source_views(states: Sequence[HeardPool], now: float) -> tuple[PoolSourceView, ...]:
    """The pools that publish, in the order of the configuration."""
    return tuple(
        PoolSourceView(
            pool=one.name, endpoint=one.endpoint, state=one.ear, age_s=round(now - one.since, 3)
        )
        for one in states
    )


def pool_views(states: Sequence[PoolState]) -> tuple[PoolView, ...]:
    """The pools, in order."""
    return tuple(map(_pool_view, states))


def _pool_view(state: PoolState) -> PoolView:
    pool = state.pool
    return PoolView(
        pool=pool.label,
        name=pool.name,
        backend=pool.backend,
        address=pool.address,
        model=pool.model,
        layout=pool.layout,
        ranks=tuple(map(str, state.ranks)),
        blocks={source.value: count for source, count in state.blocks.items()},
        trust=None if state.trust is Trust.NONE else state.trust.value,
        unnamed_blocks=state.unnamed,
        contradicted_blocks=state.contradicted,
        skips={reason.value: count for reason, count in state.skips.items()},
    )
