"""What the control port shows of storage pools."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from indexer.pool_book import PoolState
from indexer.trust import Trust


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
