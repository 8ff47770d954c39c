"""Bad configurations are refused, and the message names the field."""

import pytest
from pydantic import ValidationError

from protocol import DEFAULT_ENGINE_MODEL
from worker.config import EngineRates, WorkerConfig
from worker.flavour import OWN_FIELDS, Flavour
from worker.tree import HashFormat, HostMode

STAGING: dict[str, object] = {"hicache_host_memory_mode": "buffer_only", "storage": "memory"}


def test_defaults_are_a_small_engine() -> None:
    config = WorkerConfig()
    assert config.engine_model.model() == DEFAULT_ENGINE_MODEL
    assert config.context_tokens == config.gpu_tokens
    settings = config.engine_settings()
    assert settings.tree.host_tokens == 2 * settings.tree.device_tokens
    assert settings.prefetch.threshold == 256


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"pagesize": 4}, "pagesize"),
        ({"page_size": 0}, "page_size"),
        ({"gpu_tokens": 10, "page_size": 16}, "gpu_tokens"),
        ({"host_tokens": 10, "page_size": 16}, "host_tokens"),
        ({"gpu_tokens": 1_000, "max_model_len": 1_001}, "max_model_len"),
        ({"storage": "disk"}, "storage"),
        ({"storage": "dir:"}, "storage"),
        ({"storage": "memory", "host_tokens": None}, "storage"),
        ({"write_policy": "never"}, "write_policy"),
        ({"prefetch_policy": "maybe"}, "prefetch_policy"),
        ({"port": 70_000}, "port"),
        ({"events_port": 65_535, "dp_size": 2}, "events_port"),
        ({"replay_port": 65_535, "dp_size": 2}, "replay_port"),
        ({"events_port": 5_000, "replay_port": 5_001, "dp_size": 2}, "replay_port"),
        ({"speed": 0}, "speed"),
        ({"speed": float("inf")}, "speed"),
        ({"engine_model": {"prefill_tokens_per_s": -1}}, "prefill_tokens_per_s"),
        ({"engine_model": {"prefil": 1}}, "prefil"),
        ({"engine": "tgi"}, "engine"),
        ({"engine": "vllm", "storage": "memory"}, "storage"),
        ({"engine": "vllm", "host_tokens": None}, "host_tokens"),
        ({"engine": "vllm", "decode_log_interval": 1}, "decode_log_interval"),
        ({"engine": "vllm", "mute_refill_events": True}, "mute_refill_events"),
        ({"engine": "vllm", "release": "0.1"}, "release"),
        ({"engine": "vllm", "offload_blocks": 2}, "offload_blocks"),
        ({"engine": "vllm", "self_describing_offload": True}, "self_describing_offload"),
        ({"engine": "vllm", "offload_tokens": 100, "offload_blocks": 2}, "offload_tokens"),
        ({"hicache_host_memory_mode": "none"}, "hicache_host_memory_mode"),
        ({"hicache_host_memory_mode": "buffer_only"}, "hicache_host_memory_mode"),
        (STAGING | {"write_policy": "write_back"}, "write_policy"),
        (STAGING | {"mute_refill_events": True}, "mute_refill_events"),
        (STAGING | {"host_tokens": None}, "storage"),
        ({"speculative_algorithm": "NGRAM"}, "speculative_algorithm"),
        ({"kv_events_format": "array"}, "kv_events_format"),
        ({"kv_events_format": "dynamo", "events_port": None}, "kv_events_format"),
        ({"lora_paths": ["a=/x", "a=/y"]}, "lora_paths"),
        ({"lora_paths": ["=/x"]}, "lora_paths"),
        ({"lora_paths": ["a="]}, "lora_paths"),
        ({"lora_paths": ["a:b=/x"]}, "lora_paths"),
        ({"lora_paths": [f"a{number}=/x" for number in range(65)]}, "lora_paths"),
        ({"lora_paths": ["m=/x"], "model_name": "m"}, "lora_paths"),
        ({"engine": "vllm", "speculative_algorithm": "EAGLE"}, "speculative_algorithm"),
        ({"engine": "vllm", "hicache_host_memory_mode": "buffer_only"}, "hicache_host_memory_mode"),
        ({"engine": "vllm", "kv_events_format": "dynamo"}, "kv_events_format"),
        ({"engine": "vllm", "lora_paths": ["a=/x"]}, "lora_paths"),
        ({"byte_hashes": True}, "byte_hashes"),
        ({"release": "0.23"}, "release"),
        ({"offload_tokens": 1_024}, "offload_tokens"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        WorkerConfig.model_validate(fields)
    error = caught.value.errors()[0]
    assert named in {
        *map(str, error["loc"]),
        error["msg"].removeprefix("Value error, ").split(":")[0],
    }


def test_every_field_of_one_engine_is_a_field() -> None:
    names = [name for owned in OWN_FIELDS.values() for name in owned]
    assert set(names) <= set(WorkerConfig.model_fields)
    assert len(names) == len(set(names))


def test_a_worker_of_vllm_has_blocks() -> None:
    config = WorkerConfig(engine=Flavour.VLLM, page_size=16, offload_tokens=320, offload_blocks=2)
    blocks = config.engine_settings().blocks
    assert blocks is not None
    assert (blocks.num_blocks, blocks.num_copies) == (65_536 // 16, 10)
    assert WorkerConfig().engine_settings().blocks is None


def test_modes_reach_the_tree() -> None:
    fields = {"speculative_algorithm": "EAGLE", "kv_events_format": "dynamo", "lora_paths": ["a"]}
    config = WorkerConfig.model_validate(STAGING | fields)
    tree = config.tree_config()
    assert (tree.is_eagle, tree.hash_format) == (True, HashFormat.DYNAMO)
    assert tree.host_mode is HostMode.BUFFER_ONLY
    assert list(tree.adapters.values()) == ["a"]


def test_configuration_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        WorkerConfig().port = 1
    with pytest.raises(ValidationError, match="frozen"):
        EngineRates().decode_ms = 1.0
