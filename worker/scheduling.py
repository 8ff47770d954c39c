"""How each engine shares its device between prompts and answers, and who yields when slots run out.

vLLM admits whatever prompt fits, and takes the latest request off where an answer finds no block. In
SGLang, admission expects of each running request a share of the answer that it has still to give. The share falls
while nothing goes wrong, and jumps up when requests had to be retracted:

    share │＼                 ／＼
          │   ＼            ／     ＼
     0.1  │      ＼＿＿＿＿│          ＼＿＿＿＿     retracted at │

Source: vLLM 0.32.0, as recorded (``llama3_small_evict``: one step for all, the latest is preempted); SGLang as
its scheduler is publicly known (prefill first, decode steps alone, retraction, ``new_token_ratio``), for no retraction was
recorded.
"""

from collections.abc import Collection
from collections.abc import Sequence as Sequences

from worker.lineup import Lineup
from worker.request import Sequence
from worker.sequence_cache import CLIPPED_ANSWER

_FIRST_SHARE = 0.7
_LEAST_SHARE = 0.098
_STEPS_OF_FALL = 600
_STEPS_SPARED = 20
"""Decode steps that the share is chosen to last for, after a retraction."""


class SglangScheduling:
    """Prefill first, then decode steps of all.

    Attributes:
        is_mixed: prompts and answers share a batch.
        flush_interval: decode steps between two flushes of events.
        flushes_idle: events are flushed when nothing runs.
        multiple: prompts are cut between so many tokens.
    """

    is_mixed = False
    flushes_idle = True

    def __init__(self, page_size: int, flush_interval: int) -> None:
        self.multiple = page_size
        self.flush_interval = flush_interval
        self._share = _FIRST_SHARE

    def headroom(self, lineup: Lineup, beside: Collection[Sequence]) -> int:
        """Tokens that admitted requests are expected to take: their share of those that run, all of those
        ``beside``, which are admitted into the same batch."""
        running = sum(map(_to_come, lineup.running.values()))
        return int(self._share * running) + sum(map(_to_come, beside))

    def victim(self, lineup: Lineup) -> Sequence:
        """Fewest tokens of an answer so far; among equals, the longest prompt, then the latest."""
        return min(
            reversed(lineup.running.values()),
            key=lambda sequence: (sequence.num_generated, -sequence.num_prompt),
        )

    def preempted(self, left: Sequences[Sequence]) -> None:
        """Requests were retracted; these are left."""
        generated = sum(sequence.num_generated for sequence in left)
        expected = sum(sequence.request.max_new_tokens for sequence in left)
        if expected:
            self._share = min(1.0, (generated + _STEPS_SPARED * len(left)) / expected)

    def decoded(self) -> None:
        """A decode step went well."""
        fall = (_FIRST_SHARE - _LEAST_SHARE) / _STEPS_OF_FALL
        self._share = max(_LEAST_SHARE, self._share - fall)

    def idle(self) -> None:
        """Nothing runs and nothing waits."""
        self._share = _FIRST_SHARE


class VllmScheduling:
    """One step for prompts and answers; attributes as in ``SglangScheduling``."""

    is_mixed = True
    flushes_idle = False
    flush_interval = 1
    multiple = 1

    def headroom(self, lineup: Lineup, beside: Collection[Sequence]) -> int:  # noqa: ARG002
        """None: a prompt that fits is admitted."""
        return 0

    def victim(self, lineup: Lineup) -> Sequence:
        """The latest admitted."""
        return lineup.chunked or next(reversed(lineup.running.values()))

    def preempted(self, left: Sequences[Sequence]) -> None:
        """Nothing is learned from it."""

    def decoded(self) -> None:
        """Nothing is learned from it."""

    def idle(self) -> None:
        """Nothing was learned."""


def _to_come(sequence: Sequence) -> int:
    return min(sequence.num_to_come, CLIPPED_ANSWER)
