"""What one worker is, as learned from it: address, model, ranks, and where its events come from."""

from dataclasses import dataclass
from enum import StrEnum

from protocol.ids import Rank, WorkerId
from protocol.storage_pool import DEFAULT_PREFETCH_THRESHOLD, StorageUse


class EngineKind(StrEnum):
    """The engine behind a worker's URL."""

    SGLANG = "sglang"
    VLLM = "vllm"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EventSource:
    """One publisher: where a rank's events are heard and replayed.

    Attributes:
        rank: the rank that batches without a rank of their own belong to.
        endpoint: ZeroMQ endpoint of the PUB socket, ``tcp://host:port``.
        replay_endpoint: of the ROUTER socket; None where replay is off.
        topic: subscription prefix.
        is_bound: we bind the endpoint and the publisher connects to it. Others may, too; the topic tells
            them apart.
    """

    rank: Rank
    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    is_bound: bool = False


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One engine endpoint.

    Attributes:
        url: base URL without a trailing slash.
        model: the name that requests use; ``aliases`` are further ones, ``adapters`` name LoRAs.
        block_size: as the engine advertises it (tokens); its events have the last word.
        tokenizer: directory that the engine names; None where it names none.
        sources: one a publisher; empty where the engine publishes nothing.
        num_ranks: data-parallel ranks, at least 1.
        first_rank: the lowest of them; not 0 where the engine serves some of a group's ranks only, as vLLM
            does behind an external load balancer.
        max_model_len: tokens; None where unknown.
        storage: its storage, shared or not; None where it is not known to have any.
        prefetch_threshold: tokens; None where the engine does not say.
        max_running: requests that each rank runs at once, as the engine says; None where it does not.
        max_in_flight: requests that each rank is to be given at once, as the operator says; None where nobody does.
        stages_on_host: its host memory is no cache, but on the way from storage to GPU: whatever it fetches is
            announced on GPU alone.
    """

    worker: WorkerId
    url: str
    model: str
    engine: EngineKind = EngineKind.UNKNOWN
    version: str | None = None
    block_size: int | None = None
    tokenizer: str | None = None
    sources: tuple[EventSource, ...] = ()
    num_ranks: int = 1
    max_model_len: int | None = None
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    storage: StorageUse | None = None
    prefetch_threshold: int | None = None
    first_rank: int = 0
    stages_on_host: bool = False
    max_running: int | None = None
    max_in_flight: int | None = None

    @property
    def fetch_threshold(self) -> int:
        """Tokens: the engine fetches no shorter hits from storage. vLLM's connectors fetch any block."""
        if self.prefetch_threshold is not None:
            return self.prefetch_threshold
        return 0 if self.engine is EngineKind.VLLM else DEFAULT_PREFETCH_THRESHOLD

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Every rank of the worker, in order."""
        return tuple(Rank(self.worker, dp_rank) for dp_rank in self.dp_ranks)

    @property
    def adapter_names(self) -> dict[str, str]:
        """Every name that requests may use for one of its adapters, and the adapter.

        SGLang takes them behind the model's name: ``model:adapter``.

        Source: SGLang 0.5.23 (``serving_base.py``).
        """
        names = {adapter: adapter for adapter in self.adapters}
        if self.engine is EngineKind.SGLANG:
            for base in (self.model, *self.aliases):
                names |= {f"{base}:{adapter}": adapter for adapter in self.adapters}
        return names

    @property
    def dp_ranks(self) -> range:
        """The numbers of its ranks."""
        return range(self.first_rank, self.first_rank + self.num_ranks)
