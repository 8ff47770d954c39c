"""What the operator says of storage pools: which there are, where they publish, and what may be inferred."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from indexer.storage_rules import StorageRules
from protocol import EventSource, PoolName, Rank, pool_source
from router.config_section import Section
from router.plain_text import MAX_TEXT, is_plain
from router.worker_entry import EventEndpoint, StoragePoolName


def _topic(value: str) -> str:
    if not is_plain(value):
        raise ValueError(f"not printable, or longer than {MAX_TEXT} characters")
    return value


class PoolEvents(Section):
    """Where a storage pool publishes its events, as Mooncake's master does.

    Attributes:
        endpoint: `tcp://host:port`.
        replay_endpoint: likewise, where there is one; Mooncake's master has none.
        topic: as the publisher is told.
    """

    endpoint: EventEndpoint
    replay_endpoint: EventEndpoint | None = None
    topic: Annotated[str, AfterValidator(_topic)] = ""

    @model_validator(mode="after")
    def _has_hosts(self) -> Self:
        for endpoint in (self.endpoint, self.replay_endpoint or ""):
            if endpoint.startswith("tcp://*:"):
                raise ValueError("a pool has no worker whose host a * could stand for")
        return self


class PoolEntry(Section):
    """A storage pool that publishes events of its own.

    Attributes:
        name: as workers name it in their ``storage_pool``.
        events: where it publishes.
    """

    name: StoragePoolName
    events: PoolEvents


class StorageConfig(Section):
    """Storage that workers share.

    Attributes:
        infer: what a worker copies to host memory counts as being in its pool, too, where its engine writes
            such copies through. Without it a pool holds what is announced, or what its own events say.
        inferred_ttl_s: how long an inferred copy counts.
        max_inferred: inferred blocks of one pool; at the bound the oldest go.
        pools: those that publish events of their own.
    """

    infer: bool = False
    inferred_ttl_s: Annotated[float, Field(gt=0, le=30 * 86_400)] = StorageRules().inferred_ttl_s
    max_inferred: Annotated[int, Field(ge=1, le=100_000_000)] = StorageRules().max_inferred
    pools: tuple[PoolEntry, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [pool.name for pool in self.pools]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"pools.{index}: a second pool named {name!r}")
        return self

    def rules(self) -> StorageRules:
        """As the index takes them."""
        speaking = frozenset(PoolName(pool.name) for pool in self.pools)
        return StorageRules(self.infer, self.inferred_ttl_s, self.max_inferred, speaking)

    def sources(self) -> dict[PoolName, EventSource]:
        """Where each pool is heard."""
        return {
            name: EventSource(
                Rank(pool_source(name)),
                pool.events.endpoint,
                pool.events.replay_endpoint,
                pool.events.topic,
            )
            for pool in self.pools
            for name in [PoolName(pool.name)]
        }
