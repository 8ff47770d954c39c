"""How far one answer has come, and what writes it down."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from worker.request import FinishReason, TokenOutput, Usage
from worker.vocabulary import Vocabulary


@dataclass(slots=True)
class Progress:
    """One answer so far.

    Attributes:
        token_ids, text: of the whole answer so far.
        new_ids, new_text: of the latest ``add``.
        usage: known from the first token on.
    """

    vocabulary: Vocabulary
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    new_ids: tuple[int, ...] = ()
    new_text: str = ""
    usage: Usage = field(default_factory=lambda: Usage(0))
    finish: FinishReason | None = None

    def add(self, outputs: Sequence[TokenOutput]) -> None:
        """Take tokens as the engine hands them over."""
        self.new_ids = tuple(output.token_id for output in outputs)
        self.new_text = self.vocabulary.text(self.new_ids)
        self.token_ids.extend(self.new_ids)
        self.text += self.new_text
        self.finish = outputs[-1].finish
        if outputs[0].usage is not None:
            self.usage = outputs[0].usage


class AnswerFormat(Protocol):
    """One API's way to write an answer down."""

    def opening(self) -> bytes:
        """What a stream begins with, before its first chunk."""
        ...

    def chunk(self, progress: Progress) -> bytes:
        """What is new."""
        ...

    def closing(self, progress: Progress, /) -> bytes:
        """What a stream ends with, after its last chunk."""
        ...

    def whole(self, progress: Progress) -> bytes:
        """A finished answer as one document."""
        ...
