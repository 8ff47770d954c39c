"""What the device is busy with: pieces of prompts, tokens of running answers, until a time."""

from dataclasses import dataclass

from protocol import EngineModel
from worker.request import Sequence


@dataclass(frozen=True, slots=True)
class Piece:
    """Uncached tokens of one sequence in a prefill."""

    sequence: Sequence
    num_tokens: int

    def duration(self, model: EngineModel) -> float:
        """Seconds that it takes, with the copy that it waits for."""
        copied_s = model.load_back_s(self.sequence.copied_tokens)
        return copied_s + model.prefill_s(self.num_tokens, self.sequence.computed)


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of the device.

    Attributes:
        ends_at: engine time, seconds.
        decodes: sequences of which it computes the next token.
    """

    ends_at: float
    pieces: tuple[Piece, ...] = ()
    decodes: tuple[Sequence, ...] = ()


def cut_piece(sequence: Sequence, budget: int, multiple: int) -> Piece:
    """As much of a prompt as the budget allows; it is cut where a multiple ends."""
    if sequence.num_uncomputed <= budget:
        return Piece(sequence, sequence.num_uncomputed)
    return Piece(sequence, budget // multiple * multiple)
