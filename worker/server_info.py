"""What a worker says of itself in either engine's shape, and where its events are heard."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.config import DIRECTORY_PREFIX, WorkerConfig
from worker.mooncake_address import MOONCAKE_PREFIX, MooncakeAddress

ENGINE_VERSION = "0.5.23"
"""SGLang release whose behaviour the simulated engine reproduces."""

_WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """A worker as it runs: its configuration, and what was only known once it ran.

    Attributes:
        tokenizer: directory of the tokenizer.
        events_port, replay_port: of rank 0 as bound; None = there is none.
        created: wall clock at start, whole seconds since the epoch.
    """

    config: WorkerConfig
    tokenizer: Path
    events_port: int | None
    replay_port: int | None
    created: int

    def server_info(self) -> dict[str, Any]:
        """The answer of ``/server_info``."""
        config = self.config
        return {
            "model_path": str(self.tokenizer),
            "tokenizer_path": str(self.tokenizer),
            "served_model_name": config.model_name,
            "host": config.host,
            "port": config.port,
            "context_length": config.context_tokens,
            "page_size": config.page_size,
            "dp_size": config.dp_size,
            "tp_size": 1,
            "max_running_requests": config.max_running,
            "max_queued_requests": config.max_waiting,
            "chunked_prefill_size": config.chunk_tokens,
            "decode_log_interval": config.decode_log_interval,
            "radix_eviction_policy": config.eviction_policy,
            "max_total_num_tokens": config.gpu_tokens,
            "enable_hierarchical_cache": config.host_tokens is not None,
            "hicache_write_policy": config.write_policy,
            "hicache_host_memory_mode": config.hicache_host_memory_mode,
            "hicache_storage_backend": _backend(config.storage),
            "hicache_storage_backend_extra_config": self._storage_config(),
            "hicache_storage_prefetch_policy": config.prefetch_policy,
            "speculative_algorithm": config.speculative_algorithm,
            "enable_lora": bool(config.lora_paths),
            "lora_paths": [adapter.server_info() for adapter in config.adapters.values()] or None,
            "version": ENGINE_VERSION,
            "kv_events_config": self._kv_events_config(),
            "kv_events": self._kv_events(),
            "kvroute_worker": config.model_dump(mode="json"),
        }

    def _storage_config(self) -> str | None:
        """As SGLang's flag of the same name has it: JSON. Directory or master tell who shares it."""
        storage = self.config.storage
        if storage == "none":
            return None
        fields: dict[str, object] = {"prefetch_threshold": self.config.prefetch_threshold}
        if storage.startswith(DIRECTORY_PREFIX):
            fields["directory"] = str(Path(storage.removeprefix(DIRECTORY_PREFIX)).resolve())
        elif storage.startswith(MOONCAKE_PREFIX):
            fields |= MooncakeAddress.parse(storage).server_config()
        return json.dumps(fields)

    def models(self) -> dict[str, Any]:
        """The answer of ``/v1/models``."""
        model = {
            "id": self.config.model_name,
            "object": "model",
            "created": self.created,
            "owned_by": self.config.engine,
            "root": str(self.tokenizer),
            "parent": None,
            "max_model_len": self.config.context_tokens,
        }
        adapters = [
            model | {"id": name, "root": adapter.path, "parent": self.config.model_name}
            for name, adapter in self.config.adapters.items()
        ]
        return {"object": "list", "data": [model, *adapters]}

    def model_info(self) -> dict[str, Any]:
        """The answer of ``/get_model_info``."""
        path = str(self.tokenizer)
        return {"model_path": path, "tokenizer_path": path, "is_generation": True}

    def event_sources(self) -> dict[str, Any]:
        """The answer of ``/kv_event_sources``: one publisher a rank; none where nothing is published."""
        config = self.config
        if self.events_port is None:
            return {}
        return {
            str(dp_rank): {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": self._endpoint(self.events_port + dp_rank),
                "replay_endpoint": self._endpoint(self.replay_port + dp_rank)
                if self.replay_port is not None
                else None,
                "buffer_steps": config.buffer_steps,
                "hwm": config.events_hwm,
                "max_queue_size": config.events_hwm,
                "topic": config.topic,
            }
            for dp_rank in range(config.dp_size)
        }

    def _endpoint(self, port: int) -> str:
        """A wildcard host is passed on as ``*``."""
        host = self.config.host
        if host in _WILDCARDS:
            return f"tcp://*:{port}"
        return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

    def _kv_events_config(self) -> str | None:
        """As SGLang's flag of the same name has it: JSON; None where nothing is published."""
        if self.events_port is None:
            return None
        fields: dict[str, object] = {
            "publisher": "zmq",
            "endpoint": self._endpoint(self.events_port),
            "bind": True,
            "buffer_steps": self.config.buffer_steps,
            "hwm": self.config.events_hwm,
            "topic": self.config.topic,
            "format": self.config.kv_events_format,
        }
        if self.replay_port is not None:
            fields["replay_endpoint"] = self._endpoint(self.replay_port)
        return json.dumps(fields)

    def _kv_events(self) -> dict[str, Any] | None:
        """How to subscribe; None where nothing is published.

        A wildcard host is passed on as it is: who asks knows how this worker is reached.
        """
        if self.events_port is None:
            return None
        info: dict[str, Any] = {
            "publisher": "zmq",
            "endpoint_host": "*" if self.config.host in _WILDCARDS else self.config.host,
            "endpoint_port_base": self.events_port,
            "topic": self.config.topic,
            "block_size": self.config.page_size,
            "dp_size": self.config.dp_size,
        }
        if self.replay_port is not None:
            info["replay_endpoint_port_base"] = self.replay_port
        return info


def _backend(storage: str) -> str | None:
    """As SGLang names storage backends."""
    if storage in ("none", "memory"):
        return None if storage == "none" else storage
    return "mooncake" if storage.startswith(MOONCAKE_PREFIX) else "file"
