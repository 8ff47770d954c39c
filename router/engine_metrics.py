"""What an engine tells in its metrics and nowhere else: block size, ranks, sleep, reuse.

Read line by line, each line once from left to right, so that no text takes longer than its length.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_MAX_LINE = 16 * 1024
"""Longer lines are not read: real ones have some hundred characters."""
_MAX_LABEL = 4
_MAX_RANKS = 1_024
_PROMPT_TOKENS = frozenset({"vllm:prompt_tokens_total", "sglang:prompt_tokens_total"})
_CACHED_TOKENS = frozenset({"vllm:prompt_tokens_cached_total", "sglang:cached_tokens_total"})


_MAX_COUNT = float(1 << 53)


@dataclass(frozen=True, slots=True)
class EngineReuse:
    """Tokens of all prompts that a rank has served since it started, as its engine counts them."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What was found.

    Attributes:
        block_size: as the cache's configuration says, unchecked; None where it is not told.
        engines: data-parallel ranks that report.
        tells_sleep: some engine tells its sleep state.
        is_asleep: every engine that tells it says that it is not awake.
        reuse: by data-parallel rank, of those that count both prompt and cached tokens.
    """

    block_size: int | None = None
    engines: frozenset[str] = field(default_factory=frozenset)
    is_asleep: bool = False
    reuse: Mapping[int, EngineReuse] = field(default_factory=dict)
    tells_sleep: bool = False


def read_metrics(text: str) -> EngineMetrics:
    """One pass over an engine's ``/metrics``; O(length)."""
    block_size: int | None = None
    engines: set[str] = set()
    awake: list[bool] = []
    prompt: dict[int, float] = {}
    cached: dict[int, float] = {}
    for name, labels, value in _samples(text):
        if name.endswith("cache_config_info"):
            block_size = block_size or _number(_label(labels, "block_size"))
        elif name.startswith("vllm:num_requests_running"):
            engine = _label(labels, "engine")
            if _number(engine) is not None and len(engine) <= _MAX_LABEL:
                engines.add(engine)
        elif name == "vllm:engine_sleep_state" and _label(labels, "sleep_state") == "awake":
            awake += [value in ("1", "1.0")] if value in ("0", "0.0", "1", "1.0") else []
        elif name in _PROMPT_TOKENS:
            _add(prompt, labels, value)
        elif name in _CACHED_TOKENS:
            _add(cached, labels, value)
    is_asleep = bool(awake) and not any(awake)
    reuse = _reuse(prompt, cached)
    return EngineMetrics(block_size, frozenset(engines), is_asleep, reuse, bool(awake))


def _add(counts: dict[int, float], labels: str, value: str) -> None:
    """Sum one sample under its rank; what is no count of tokens is left out."""
    rank = _number(_label(labels, "engine") or _label(labels, "dp_rank") or "0")
    try:
        count = float(value.split(" ", 1)[0])
    except ValueError:
        return
    if (
        rank is not None
        and 0 <= count <= _MAX_COUNT
        and (rank in counts or len(counts) < _MAX_RANKS)
    ):
        counts[rank] = counts.get(rank, 0.0) + count


def _reuse(prompt: Mapping[int, float], cached: Mapping[int, float]) -> dict[int, EngineReuse]:
    both = sorted(prompt.keys() & cached.keys())
    return {rank: EngineReuse(int(prompt[rank]), int(cached[rank])) for rank in both}


def _samples(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, labels, value of each sample that has labels."""
    for line in text.splitlines():
        if line.startswith("#") or len(line) > _MAX_LINE:
            continue
        name, _, rest = line.partition("{")
        labels, end, value = rest.partition("}")
        if end:
            yield name, labels, value.strip()


def _label(labels: str, name: str) -> str:
    """A label's value; empty where there is none."""
    start = f'{name}="'
    for part in labels.split(","):
        if part.startswith(start):
            return part[len(start) :].removesuffix('"')
    return ""


def _number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 6 else None
