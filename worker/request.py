"""One request as the engine takes it, what it hears back, and its state in between."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from worker.tree import CacheKey


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
        priority: of its pages, where the cache evicts by it; the higher stay longer.
    """

    request_id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    extra_key: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    priority: int = 0

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
        id: of the request; ``num_prompt`` is the length of its prompt.
        arrived_at: engine time, seconds.
        tokens: prompt, then what was generated.
        answer: the tokens to come.
        computed: leading tokens whose KV is on the device.
        target: leading tokens that are computed before the next one comes out: all that there were at
            its admission.
        copied_tokens: on their way to the device; its prefill waits for them.
        usage: of its first admission.
        num_preempted: how often it lost its slots.
        is_cancelled: nobody waits for the answer; it ends with the running batch.
    """

    request: EngineRequest
    arrived_at: float
    tokens: list[int]
    answer: Iterator[int]
    computed: int = 0
    target: int = 0
    copied_tokens: int = 0
    usage: Usage = field(default_factory=lambda: Usage(0))
    num_preempted: int = 0
    is_cancelled: bool = False
    id: str = field(init=False)
    num_prompt: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.request.request_id
        self.num_prompt = len(self.request.prompt)

    @property
    def num_uncomputed(self) -> int:
        """Tokens still to be prefilled."""
        return self.target - self.computed

    @property
    def num_generated(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def num_to_come(self) -> int:
        """Tokens of the answer that are still to come."""
        return self.request.max_new_tokens - self.num_generated

    def key(self, num_tokens: int) -> CacheKey:
        """Cache key of the leading ``num_tokens``."""
        request = self.request
        return CacheKey(tuple(self.tokens[:num_tokens]), request.extra_key, request.cache_salt)
