"""The engine model: how long prefill and cache transfers take, as rates.

One set of numbers serves three readers that must agree: the router's cost, the simulated worker's
clock, and the virtual-time simulation. Attention grows with the prompt, so prefill of u tokens after L
cached ones takes

    u / p · (1 + (L + u/2) / h)        seconds

where p is the rate on a short prompt and h the length at which attention doubles the cost.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Rates of one engine.

    Attributes:
        prefill_tokens_per_s: p, on a short prompt.
        attention_doubling_tokens: h.
        load_back_tokens_per_s: pinned host memory to GPU.
        fetch_tokens_per_s: storage to host memory.
        decode_ms: one decode step of a small batch, milliseconds.
        decode_ms_per_request: what each further running request adds to a step, milliseconds.
    """

    prefill_tokens_per_s: float = 8_000.0
    attention_doubling_tokens: float = 53_000.0
    load_back_tokens_per_s: float = 40_000.0
    fetch_tokens_per_s: float = 13_300.0
    decode_ms: float = 10.0
    decode_ms_per_request: float = 0.5

    def prefill_s(self, num_tokens: int, cached_tokens: int = 0) -> float:
        """Seconds to prefill ``num_tokens`` that follow ``cached_tokens``."""
        stretch = 1 + (cached_tokens + num_tokens / 2) / self.attention_doubling_tokens
        return num_tokens / self.prefill_tokens_per_s * stretch

    def load_back_s(self, num_tokens: int) -> float:
        """Seconds to copy ``num_tokens`` from host memory to GPU."""
        return num_tokens / self.load_back_tokens_per_s

    def fetch_s(self, num_tokens: int) -> float:
        """Seconds to fetch ``num_tokens`` from storage."""
        return num_tokens / self.fetch_tokens_per_s

    def decode_step_s(self, num_running: int) -> float:
        """Seconds of one decode step with ``num_running`` requests in the batch."""
        return (self.decode_ms + self.decode_ms_per_request * max(num_running - 1, 0)) / 1e3


DEFAULT_ENGINE_MODEL = EngineModel()
