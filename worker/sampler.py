"""Answers without a model: token ids that follow from the prompt alone.

Equal prompts get equal answers, on every worker and in every run, so that a conversation can be
repeated and its next turn finds the last one in the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from protocol import pack_tokens

_U64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws from two fixed sets of ids: one for the first token of an answer, one for the others.

    Args:
        first_ids, next_ids: at least one id each.
    """

    first_ids: tuple[int, ...]
    next_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.first_ids or not self.next_ids:
            raise ValueError("no token ids to answer with")

    def answer(self, prompt: tuple[int, ...]) -> Iterator[int]:
        """The endless answer to a prompt. O(prompt) at the first token, O(1) at each further one."""
        state = xxh3_64_intdigest(pack_tokens(prompt))
        yield self.first_ids[_mix(state) % len(self.first_ids)]
        while True:
            state = (state + _GOLDEN) & _U64
            yield self.next_ids[_mix(state) % len(self.next_ids)]


def _mix(state: int) -> int:
    """Spread a counter over 64 bits (the finalizer of splitmix64)."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _U64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _U64
    return state ^ (state >> 31)
