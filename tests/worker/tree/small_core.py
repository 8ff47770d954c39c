"""A small core and short words for what it says."""

from protocol import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from worker.tree import CacheKey, TreeConfig, TreeCore

GPU, HOST = "GPU", "CPU_PINNED"


def make(host_tokens: int | None = 40, **options: object) -> TreeCore:
    """A core of page size 2 with 40 device tokens, whose first event is taken."""
    config = TreeConfig(2, 40, host_tokens, load_back_threshold=0, **options)  # type: ignore[arg-type]
    core = TreeCore(config)
    core.take_events()
    return core


def key(*tokens: int, salt: str | None = None) -> CacheKey:
    return CacheKey(tokens, cache_salt=salt)


def acknowledge_all(core: TreeCore) -> None:
    for backup in core.pending_backups():
        core.acknowledge(backup)


def told(core: TreeCore) -> list[tuple[str, str | None, list[int]]]:
    """Events as (kind, medium, number of pages)."""
    core.check()
    return [summary(event) for event in core.take_events()]


def summary(event: KvEvent) -> tuple[str, str | None, list[int]]:
    match event:
        case BlockStored(hashes, medium=medium, token_ids=tokens):
            assert len(tokens) == 2 * len(hashes)
            return "+", medium, list(tokens)
        case BlockRemoved(hashes, medium):
            return "-", medium, [len(hashes)]
        case AllBlocksCleared():
            return "clear", None, []


def refill(core: TreeCore, *tokens: int) -> None:
    """Storage refill from the root."""
    assert core.reserve_host(len(tokens))
    core.insert_host(None, key(*tokens))
