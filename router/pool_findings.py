"""Findings on storage pools that publish events of their own: nobody is connected to them, or nobody uses them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indexer.findings import Finding, FindingKind
from router.pool_sources import HeardPool


@dataclass(frozen=True, slots=True)
class PoolFinding:
    """What a kind means: what is seen, and what to change."""

    kind: FindingKind
    seen: str
    advice: str


POOL_FINDINGS = (
    PoolFinding(
        FindingKind.POOL_UNREACHABLE,
        "A storage pool that workers share is to be heard at its own event endpoint, which has not been connected "
        "for half a minute.",
        "Start the pool's publisher, name its endpoint in storage.pools[].events.endpoint as the router reaches it, "
        "and open that port: what the pool holds counts as long as it was announced, and what it evicts is not "
        "noticed.",
    ),
    PoolFinding(
        FindingKind.POOL_UNUSED,
        "A storage pool publishes, and no worker that was learned has shared it for a minute, so nobody listens.",
        "Name the pool in storage_pool of the workers that share it, by the name it has in storage.pools; or take "
        "it out of storage.pools.",
    ),
)


def pool_findings(states: Sequence[HeardPool], now: float) -> Iterator[Finding]:
    """What is wrong with how pools are heard; O(pools). The first pool of each kind is the example."""
    for one in POOL_FINDINGS:
        found = [state for state in states if state.trouble(now) is one.kind]
        if not found:
            continue
        first = found[0]
        evidence: dict[str, int | float | str] = {
            "num_pools": len(found),
            "pool": first.name,
            "endpoint": first.endpoint,
            "for_s": round(now - first.since, 1),
        }
        since = min(state.since for state in found)
        yield Finding(one.kind, since, (), evidence, one.advice)
