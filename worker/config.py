"""What one simulated worker is: its sizes, rates, policies and addresses.

Sizes are tokens, durations seconds of the engine's own clock, which runs ``speed`` times as fast as
the wall's. Unknown fields are an error, and an error names the field.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from protocol import DEFAULT_ENGINE_MODEL, EngineModel
from worker.adapters import Adapter, parse_adapters
from worker.blocks import BlockConfig, VllmRelease
from worker.engine_settings import EngineSettings
from worker.flavour import OWN_FIELDS, Flavour
from worker.mooncake_address import MOONCAKE_PREFIX, MooncakeAddress
from worker.prefetch import PrefetchLimits, PrefetchPolicy
from worker.tree import EvictionPolicy, HashFormat, HostMode, TreeConfig, WritePolicy

Port = Annotated[int, Field(ge=0, le=65_535)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DIRECTORY_PREFIX = "dir:"


class SpeculativeAlgorithm(StrEnum):
    """How SGLang drafts tokens: those of its algorithms whose cache pages hold overlapping pairs. Tokens come out as
    fast as without."""

    EAGLE = "EAGLE"
    EAGLE3 = "EAGLE3"
    FROZEN_KV_MTP = "FROZEN_KV_MTP"


class EngineRates(BaseModel):
    """Rates of the engine model.

    Attributes:
        prefill_tokens_per_s: of a short prompt.
        attention_doubling_tokens: prompt length at which attention doubles the cost of prefill.
        load_back_tokens_per_s: pinned host memory to GPU, and back.
        fetch_tokens_per_s: storage to host memory.
        decode_ms: one decode step of a small batch.
        decode_ms_per_request: what each further running request adds to a step.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefill_tokens_per_s: Rate = DEFAULT_ENGINE_MODEL.prefill_tokens_per_s
    attention_doubling_tokens: Rate = DEFAULT_ENGINE_MODEL.attention_doubling_tokens
    load_back_tokens_per_s: Rate = DEFAULT_ENGINE_MODEL.load_back_tokens_per_s
    fetch_tokens_per_s: Rate = DEFAULT_ENGINE_MODEL.fetch_tokens_per_s
    decode_ms: Rate = DEFAULT_ENGINE_MODEL.decode_ms
    decode_ms_per_request: float = Field(default=DEFAULT_ENGINE_MODEL.decode_ms_per_request, ge=0)

    def model(self) -> EngineModel:
        """The engine model with these rates."""
        return EngineModel(**self.model_dump())


class WorkerConfig(BaseModel):
    """One worker.

    A field that means nothing to the worker's engine is refused, unless it has its default.

    Attributes:
        engine: whose cache, schedule, events and HTTP it has.
        host: address that HTTP and event sockets bind; ``0.0.0.0`` means every interface.
        port: of HTTP; 0 = chosen by the operating system, as are the two event ports.
        events_port: of rank 0's publisher, rank r is at ``events_port + r``; None = no events.
        replay_port: of rank 0's replay socket, likewise; None = no replay (nor is there any
            without events).
        topic: first frame of every event message.
        buffer_steps: batches kept for replay, a rank; older ones are forgotten.
        events_hwm: messages queued for a slow subscriber before further ones are dropped.
        model_name: the name that requests use.
        tokenizer: directory with ``tokenizer.json`` and the chat template; None = the bundled one.
        max_model_len: prompt and answer together; None = the device pool.
        page_size: tokens a page, which is the block of the events.
        gpu_tokens: device pool of each rank.
        host_tokens: pinned host pool of each rank; None = no host tier.
        storage: ``none``, ``memory`` (this process), or shared by all who name it: ``dir:PATH`` or
            ``mooncake://HOST:PORT``, a Mooncake store by its master.
        storage_pages: bound of the storage; the oldest pages go first. A Mooncake store has its own.
        write_policy: when pages on the device are copied to host.
        write_through_threshold: hits before a node is copied to host; None = the policy's own.
        load_back_threshold: fewer host tokens than this are computed again.
        eviction_policy: which leaf of the tree goes first under pressure.
        prefetch_threshold: fewer stored tokens than this are not fetched.
        prefetch_policy: how long a request waits for its fetch.
        prefetch_timeout_base_s: of the policy ``timeout``.
        prefetch_timeout_s_per_1k_tokens: added to it for each 1,024 tokens.
        mute_refill_events: leave out the stores of storage refills, and nothing else.
        hicache_host_memory_mode: ``cache``, or ``buffer_only``: host memory only stages what goes to storage and
            comes from it, so that nothing is ever announced on it; needs a storage, and no ``write_back``.
        speculative_algorithm: pages, their hashes and the events are of overlapping token pairs; None = of tokens.
        kv_events_format: of the hashes on the wire, as in SGLang's ``kv_events_config``: ``dynamo`` puts every
            extra key and salt into them.
        lora_paths: adapters, each as ``NAME=PATH``. Requests name one as ``model``, as ``MODEL:NAME``, or
            in ``lora_path``; its pages are a namespace of their own.
        dp_size: ranks, each with an engine, a cache and a publisher of its own.
        max_running: requests in a decode batch, a rank.
        max_waiting: requests queued, a rank; one more is answered 503.
        chunk_tokens: uncached tokens in one prefill batch.
        decode_log_interval: decode steps between two flushes of events.
        max_body_bytes: longer request bodies are answered 413.
        drain_s: wall seconds that running answers get when the worker is told to stop.
        speed: engine seconds in a second of wall time.
        engine_model: how fast the engine is.
        release: of vLLM, which decides what is on the wire: events as arrays (0.23) or maps, replay replies
            with a topic frame and ``/kv_event_sources`` (0.32) or without.
        byte_hashes: vLLM publishes hashes whole, as 32 bytes; without it, as 64-bit numbers.
        offload_tokens: CPU pool that vLLM copies full blocks to, each rank; None = no offload.
        offload_blocks: blocks that are copied there, announced and evicted together.
        self_describing_offload: events of the CPU pool name each block with its tokens; without it, a copy is
            announced by the hash of its last block alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    engine: Flavour = Flavour.SGLANG
    host: str = Field(default="127.0.0.1", min_length=1)
    port: Port = 8000
    events_port: Port | None = 0
    replay_port: Port | None = 0
    topic: str = ""
    buffer_steps: int = Field(default=10_000, ge=1, le=1_000_000)
    events_hwm: int = Field(default=100_000, ge=1)

    model_name: str = Field(default="kvroute-sim", min_length=1)
    tokenizer: Path | None = None
    max_model_len: int | None = Field(default=None, ge=2)

    page_size: int = Field(default=64, ge=1, le=4_096)
    gpu_tokens: int = Field(default=65_536, ge=1)
    host_tokens: int | None = Field(default=131_072, ge=1)
    storage: str = "none"
    storage_pages: int = Field(default=1 << 20, ge=1)
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH
    write_through_threshold: int | None = Field(default=None, ge=1)
    load_back_threshold: int = Field(default=10, ge=0)
    eviction_policy: EvictionPolicy = EvictionPolicy.LRU
    prefetch_threshold: int = Field(default=256, ge=1)
    prefetch_policy: PrefetchPolicy = PrefetchPolicy.TIMEOUT
    prefetch_timeout_base_s: float = Field(default=1.0, ge=0)
    prefetch_timeout_s_per_1k_tokens: float = Field(default=0.25, ge=0)
    mute_refill_events: bool = False
    hicache_host_memory_mode: HostMode = HostMode.CACHE
    speculative_algorithm: SpeculativeAlgorithm | None = None
    kv_events_format: HashFormat = HashFormat.DEFAULT
    lora_paths: tuple[str, ...] = ()

    dp_size: int = Field(default=1, ge=1, le=64)
    max_running: int = Field(default=64, ge=1, le=4_096)
    max_waiting: int = Field(default=256, ge=1, le=65_536)
    chunk_tokens: int = Field(default=8_192, ge=1)
    decode_log_interval: int = Field(default=40, ge=1)
    max_body_bytes: int = Field(default=16 << 20, ge=1)
    drain_s: float = Field(default=3.0, ge=0, allow_inf_nan=False)
    speed: Rate = 1.0
    engine_model: EngineRates = EngineRates()

    release: VllmRelease = VllmRelease.V0_32
    byte_hashes: bool = False
    offload_tokens: int | None = Field(default=None, ge=1)
    offload_blocks: int = Field(default=1, ge=1, le=1_024)
    self_describing_offload: bool = False

    @field_validator("storage")
    @classmethod
    def _storage_is_known(cls, value: str) -> str:
        is_directory = value.startswith(DIRECTORY_PREFIX) and len(value) > len(DIRECTORY_PREFIX)
        if value.startswith(MOONCAKE_PREFIX):
            MooncakeAddress.parse(value)
        elif value not in ("none", "memory") and not is_directory:
            raise ValueError("none, memory, dir:PATH or mooncake://HOST:PORT")
        return value

    @field_validator("lora_paths")
    @classmethod
    def _adapters_are_named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_adapters(value)
        return value

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        """Every field that was set means something to the engine, and something is to be offloaded."""
        for flavour, names in OWN_FIELDS.items():
            for name in names if flavour is not self.engine else ():
                if getattr(self, name) != WorkerConfig.model_fields[name].default:
                    raise ValueError(f"{name}: {self.engine} has no such thing")
        if self.offload_tokens is None:
            if self.offload_blocks > 1 or self.self_describing_offload:
                name = "offload_blocks" if self.offload_blocks > 1 else "self_describing_offload"
                raise ValueError(f"{name}: needs offload_tokens")
        elif self.offload_tokens < self.page_size * self.offload_blocks:
            raise ValueError("offload_tokens: less than one copy")
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        has_host = self.engine is Flavour.SGLANG
        for name in ("gpu_tokens", "host_tokens") if has_host else ("gpu_tokens",):
            size = getattr(self, name)
            if size is not None and size < self.page_size:
                raise ValueError(f"{name}: less than one page of {self.page_size} tokens")
        if self.context_tokens > self.gpu_tokens:
            raise ValueError("max_model_len: more than gpu_tokens")
        if self.storage != "none" and self.host_tokens is None:
            raise ValueError("storage: needs host_tokens, fetched pages land in host memory")
        return self

    @model_validator(mode="after")
    def _modes_fit(self) -> Self:
        if self.model_name in self.adapters:
            raise ValueError("lora_paths: an adapter has the name of the model")
        if self.kv_events_format is not HashFormat.DEFAULT and self.events_port is None:
            raise ValueError("kv_events_format: needs events_port")
        if self.hicache_host_memory_mode is HostMode.BUFFER_ONLY:
            if self.storage == "none":
                raise ValueError("hicache_host_memory_mode: buffer_only needs storage")
            if self.write_policy is WritePolicy.WRITE_BACK:
                raise ValueError("write_policy: write_back has no host tier in buffer_only")
            if self.mute_refill_events:
                raise ValueError("mute_refill_events: buffer_only refills no host tier")
        return self

    @model_validator(mode="after")
    def _ports_fit(self) -> Self:
        first, second = self.events_port, self.replay_port
        for name, port in (("events_port", first), ("replay_port", second)):
            if port and port + self.dp_size - 1 > 65_535:
                raise ValueError(f"{name}: rank {self.dp_size - 1} has no port left")
            if port and port <= self.port < port + self.dp_size:
                raise ValueError(f"{name}: within its ports is {self.port}, which HTTP has")
        if first and second and abs(first - second) < self.dp_size:
            raise ValueError("replay_port: within the ports of the publishers")
        return self

    @property
    def context_tokens(self) -> int:
        """Longest prompt and answer together."""
        return self.gpu_tokens if self.max_model_len is None else self.max_model_len

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """By name."""
        return parse_adapters(self.lora_paths)

    def tree_config(self) -> TreeConfig:
        """The tree core of one rank."""
        return TreeConfig(
            page_size=self.page_size,
            device_tokens=self.gpu_tokens,
            host_tokens=self.host_tokens,
            write_policy=self.write_policy,
            write_through_threshold=self.write_through_threshold,
            load_back_threshold=self.load_back_threshold,
            eviction_policy=self.eviction_policy,
            host_mode=self.hicache_host_memory_mode,
            hash_format=self.kv_events_format,
            is_eagle=self.speculative_algorithm is not None,
            announce_refills=not self.mute_refill_events,
            events_enabled=self.events_port is not None,
            adapters={adapter.id: name for name, adapter in self.adapters.items()},
        )

    def block_config(self) -> BlockConfig | None:
        """The block pool of one rank; None where it has a tree core."""
        if self.engine is not Flavour.VLLM:
            return None
        return BlockConfig(
            self.page_size,
            self.gpu_tokens,
            self.offload_tokens,
            self.offload_blocks,
            self.self_describing_offload,
            self.byte_hashes,
            events_enabled=self.events_port is not None,
        )

    def engine_settings(self) -> EngineSettings:
        """The engine of one rank."""
        return EngineSettings(
            tree=self.tree_config(),
            model=self.engine_model.model(),
            prefetch=PrefetchLimits(
                self.prefetch_threshold,
                self.prefetch_policy,
                self.prefetch_timeout_base_s,
                self.prefetch_timeout_s_per_1k_tokens,
            ),
            max_running=self.max_running,
            max_waiting=self.max_waiting,
            chunk_tokens=self.chunk_tokens,
            decode_log_interval=self.decode_log_interval,
            blocks=self.block_config(),
        )
