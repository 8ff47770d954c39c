"""What an engine is set to, what it counts, and what one step of it hands over."""

from collections.abc import Sequence as Values
from dataclasses import dataclass, field

from protocol import DEFAULT_ENGINE_MODEL, EngineModel, KvEvent
from worker.blocks import BlockConfig
from worker.prefetch import PrefetchLimits
from worker.request import TokenOutput
from worker.tree import TreeConfig


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One rank.

    Attributes:
        tree: cache of the SGLang flavour.
        blocks: of the vLLM flavour; None = it is the other one, which alone has storage and its prefetch.
        max_running: requests in a decode batch.
        max_waiting: requests that have arrived and are not admitted yet.
        chunk_tokens: uncached tokens in one prefill batch; at least a page is taken.
        decode_log_interval: decode steps between two flushes of events; vLLM flushes after each step.
    """

    tree: TreeConfig
    model: EngineModel = DEFAULT_ENGINE_MODEL
    prefetch: PrefetchLimits = field(default_factory=PrefetchLimits)
    max_running: int = 64
    max_waiting: int = 256
    chunk_tokens: int = 8_192
    decode_log_interval: int = 40
    blocks: BlockConfig | None = None


@dataclass(slots=True)
class EngineCounters:
    """Since construction. Requests, unless the name says tokens or steps.

    ``preempted`` counts a request each time. ``prefilled_tokens`` includes what is computed again after it.
    ``cached_*_tokens`` add up the ``Usage`` of admitted requests. Tokens brought back from storage are
    counted by the tree (``TreeCounters.refilled``).
    """

    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    preempted: int = 0
    refused_full: int = 0
    refused_large: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    cached_device_tokens: int = 0
    cached_host_tokens: int = 0
    cached_storage_tokens: int = 0
    prefill_steps: int = 0
    decode_steps: int = 0
    flushes: int = 0


@dataclass(frozen=True, slots=True)
class Flush:
    """Events handed over together, to be published as one batch; at least one."""

    at: float
    events: Values[KvEvent]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What happened up to the time that ``step`` was told, in order."""

    outputs: list[TokenOutput] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)


class QueueFullError(Exception):
    """As many requests wait as may; come back later."""


class RequestTooLargeError(ValueError):
    """The device pool cannot hold the prompt and its answer, however long one waits."""
