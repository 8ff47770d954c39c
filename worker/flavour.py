"""Which engine a simulated worker is, and what each of them alone can be configured to."""

from collections.abc import Mapping
from enum import StrEnum


class Flavour(StrEnum):
    """The engine whose cache, schedule, events and HTTP a worker has."""

    SGLANG = "sglang"
    VLLM = "vllm"


OWN_FIELDS: Mapping[Flavour, tuple[str, ...]] = {
    Flavour.SGLANG: (
        "host_tokens", "storage", "storage_pages", "write_policy", "write_through_threshold",
        "load_back_threshold", "eviction_policy", "prefetch_threshold", "prefetch_policy",
        "prefetch_timeout_base_s", "prefetch_timeout_s_per_1k_tokens", "mute_refill_events",
        "decode_log_interval", "hicache_host_memory_mode", "speculative_algorithm", "kv_events_format", "lora_paths",
    ),
    Flavour.VLLM: (
        "release", "byte_hashes", "offload_tokens", "offload_blocks", "self_describing_offload",
    ),
}  # fmt: skip
"""Fields of the worker's configuration that mean nothing to the other engine."""
