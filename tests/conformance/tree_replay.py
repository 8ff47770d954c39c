"""Replay of SGLang's recorded tree-core operations on a tree core of ours."""

from collections.abc import Callable
from typing import Any

from protocol import EngineHash
from worker.storage import MemoryStorage
from worker.tree import (
    CacheKey,
    EvictionPolicy,
    HashFormat,
    HostMode,
    Node,
    TreeConfig,
    TreeCore,
    WritePolicy,
)

ADAPTERS = {"lora-ns": "my-adapter"}
_STORED_AT_START = (1, 2, 3, 4, 5, 6)


def config_of(scenario: str, meta: dict[str, Any]) -> TreeConfig:
    """The configuration a scenario was recorded under; absent keys have their documented values."""
    return TreeConfig(
        page_size=meta["page_size"],
        device_tokens=meta.get("kv_size") or 64,
        host_tokens=meta.get("host_tokens"),
        write_policy=WritePolicy(meta.get("hicache") or "write_through"),
        write_through_threshold=meta.get("write_through_threshold"),
        load_back_threshold=meta.get("load_back_threshold") or 0,
        eviction_policy=EvictionPolicy(meta.get("eviction_policy") or "lru"),
        host_mode=HostMode(meta.get("host_memory_mode") or "cache"),
        hash_format=HashFormat.DYNAMO if meta.get("dynamo") else HashFormat.DEFAULT,
        is_eagle=bool(meta.get("eagle")),
        events_enabled=scenario != "events_disabled",
        sliding_window=meta.get("sliding_window"),
        adapters=ADAPTERS,
    )


class Replayer:
    """Runs recorded operations by name; each returns its result in the recording's form."""

    def __init__(self, config: TreeConfig) -> None:
        self.core = TreeCore(config)
        self._storage = MemoryStorage()
        self._storage.put(self.core.storage_pages(None, CacheKey(_STORED_AT_START)))
        self._locked: dict[tuple[int, ...], Node] = {}
        self._loading: Any = None

    def run(self, op: str, args: dict[str, Any]) -> object:
        """Run one operation."""
        operation: Callable[..., object] = getattr(self, f"_{op}")
        return operation(**args)

    def residency(self) -> dict[str, set[int]]:
        """What the core holds, with signed hashes as in the recordings."""
        held = self.core.residency()
        return {
            "GPU": signed(held.device),
            "CPU_PINNED": signed(held.host),
            "CPU_PINNED_inflight": signed(held.host_in_flight),
        }

    def pools(self) -> dict[str, int | None]:
        """Free tokens of each pool."""
        host = self.core.host
        return {"device_free": self.core.device.free, "host_free": host.free if host else None}

    def _construct(self) -> None:
        pass

    def _reset(self) -> None:
        self.core.reset()

    def _insert(
        self,
        tokens: list[int],
        extra_key: str | None = None,
        cache_salt: str | None = None,
        session_id: str | None = None,
        priority: int | None = None,
    ) -> dict[str, object]:
        key = CacheKey(tuple(tokens), extra_key, cache_salt)
        result = self.core.insert(key, priority=priority or 0, session_id=session_id)
        return {"prefix_len": result.prefix_tokens}

    def _insert_many(self, sequence: list[list[int]]) -> None:
        for tokens in sequence:
            self._insert(tokens)

    def _match_prefix(
        self, tokens: list[int], extra_key: str | None = None, cache_salt: str | None = None
    ) -> dict[str, object]:
        match = self.core.match(CacheKey(tuple(tokens), extra_key, cache_salt))
        return {"device_prefix_len": match.device_tokens, "host_hit_length": match.host_tokens}

    def _lock(self, tokens: list[int]) -> None:
        node = self.core.match(CacheKey(tuple(tokens))).device_node
        self.core.lock(node)
        self._locked[tuple(tokens)] = node

    def _unlock(self, tokens: list[int]) -> None:
        self.core.unlock(self._locked.pop(tuple(tokens)))

    def _evict_device(self, num_tokens: int) -> dict[str, object]:
        return {"num_tokens_evicted": self.core.evict_device(num_tokens)}

    def _evict_many(self, sequence: list[int]) -> None:
        for num_tokens in sequence:
            self.core.evict_device(num_tokens)

    def _evict_host(self, num_tokens: int) -> dict[str, object]:
        return {"freed": self.core.evict_host(num_tokens)}

    def _evict_swa_only(self, swa_num_tokens: int) -> dict[str, object]:
        freed = self.core.evict_window(swa_num_tokens)
        return {"full": freed.device_tokens, "swa": freed.window_tokens}

    def _write_through_ack(self) -> None:
        for backup in self.core.pending_backups():
            self._storage.put(self.core.acknowledge(backup).pages)

    _ack = _ack_and_storage_backup = _backup_to_storage = _write_backup_ack = _write_through_ack

    def _write_backup_issued(self, tokens: list[int]) -> dict[str, object]:
        node = self.core.match(CacheKey(tuple(tokens))).device_node
        return {"written": self.core.back_up(node)}

    def _load_back_issued(self, tokens: list[int]) -> dict[str, object]:
        self._loading = self.core.load_back(self.core.match(CacheKey(tuple(tokens))))
        return {"ok": self._loading is not None}

    def _load_back_ack(self) -> None:
        if self._loading is not None:
            self.core.finish_load_back(self._loading)

    def _insert_host(
        self,
        tokens: list[int],
        anchor_tokens: list[int] | None = None,
        hashes: list[int] | None = None,
        hash_hex: list[str] | None = None,
    ) -> dict[str, object]:
        anchor = self.core.match(CacheKey(tuple(anchor_tokens))).node if anchor_tokens else None
        digests = None if hash_hex is None else [bytes.fromhex(digest) for digest in hash_hex]
        assert self.core.reserve_host(len(tokens))
        result = self.core.insert_host(anchor, CacheKey(tuple(tokens)), digests=digests)
        return {
            "prefix_len": result.prefix_tokens,
            "dropped": result.is_dropped,
            "inserted": result.node is not None and result.node.is_backed,
        }

    def _prefetch_from_storage_issued(
        self, tokens: list[int], matched_prefix: int
    ) -> dict[str, object]:
        return {"ongoing": len(tokens) > matched_prefix}

    def _prefetch_done(self, tokens: list[int]) -> dict[str, object]:
        match = self.core.match(CacheKey(tuple(tokens)))
        pages = self.core.storage_pages(match.node, CacheKey(tuple(tokens[match.tokens :])))
        held = pages[: self._storage.exists([page.digest for page in pages])]
        fetched = [token for page in held[: self._storage.fetch(held)] for token in page.tokens]
        assert self.core.reserve_host(len(fetched))
        self.core.insert_host(match.node, CacheKey(tuple(fetched)))
        return {"ok": True, "loaded": len(fetched)}


def signed(hashes: tuple[EngineHash, ...]) -> set[int]:
    """Engine hashes as the signed numbers of the recordings."""
    assert all(isinstance(h, int) for h in hashes)
    return {h - (1 << 64) if h >> 63 else h for h in hashes if isinstance(h, int)}
