"""One request as the engine takes it, what it hears back, and its state in between."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from worker.prefetch import Prefetch
from worker.tree import CacheKey, LoadBack, Node


class FinishReason(StrEnum):
    """Why an answer ended."""

    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt and how much to answer.

    Attributes:
        request_id: unique among the requests that the engine has not finished.
        prompt: token ids, at least one.
        max_new_tokens: length of the answer, at least 1; answers are always this long.
        extra_key, cache_salt: namespace of the cache.
        session_id: attribution of the events.
    """

    request_id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    extra_key: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("the prompt is empty")
        if self.max_new_tokens < 1:
            raise ValueError("max_new_tokens is at least 1")


@dataclass(frozen=True, slots=True)
class Usage:
    """Where a prompt's tokens came from, known at admission.

    ``cached_storage_tokens`` were fetched from storage for this very request; they are loaded back
    from host memory like those of ``cached_host_tokens``, which do not include them.
    """

    prompt_tokens: int
    cached_device_tokens: int = 0
    cached_host_tokens: int = 0
    cached_storage_tokens: int = 0

    @property
    def cached_tokens(self) -> int:
        """Tokens that were not computed again."""
        return self.cached_device_tokens + self.cached_host_tokens + self.cached_storage_tokens


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """One token of one answer.

    Attributes:
        at: engine time at which it came out, seconds.
        usage: with the first token of an answer.
        finish: with the last.
    """

    request_id: str
    token_id: int
    at: float
    usage: Usage | None = None
    finish: FinishReason | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine.

    Attributes:
        arrived_at: engine time, seconds.
        tokens: prompt, then what was generated.
        answer: the tokens to come.
        computed: leading tokens whose KV is on the device.
        node, locked_tokens: the locked part of the tree and its length; None = nothing is locked.
        owned_tokens: reserved device slots beyond it.
        counted_tokens: length of the latest insert; a request hits each page once.
        refilled_tokens: brought to host from storage for this request.
        prefetch: fetch that the request waits for.
        load_back: copy that its prefill waits for.
        is_cancelled: nobody waits for the answer; it ends with the running batch.
    """

    request: EngineRequest
    arrived_at: float
    tokens: list[int]
    answer: Iterator[int]
    computed: int = 0
    node: Node | None = None
    locked_tokens: int = 0
    owned_tokens: int = 0
    counted_tokens: int = 0
    refilled_tokens: int = 0
    usage: Usage = field(default_factory=lambda: Usage(0))
    prefetch: Prefetch | None = None
    load_back: LoadBack | None = None
    is_cancelled: bool = False

    @property
    def num_prompt(self) -> int:
        """Length of the prompt."""
        return len(self.request.prompt)

    @property
    def num_uncomputed(self) -> int:
        """Prompt tokens still to be prefilled."""
        return self.num_prompt - self.computed

    @property
    def is_complete(self) -> bool:
        """Whether the answer has its length."""
        return len(self.tokens) - self.num_prompt >= self.request.max_new_tokens

    def key(self, num_tokens: int) -> CacheKey:
        """Cache key of the leading ``num_tokens``."""
        request = self.request
        return CacheKey(tuple(self.tokens[:num_tokens]), request.extra_key, request.cache_salt)
