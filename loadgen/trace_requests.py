"""Requests of a trace, made one at a time on the way: a whole trace of token ids would fill the memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from loadgen.synthesis import BlockSynthesis
from loadgen.timed_request import PromptForm, TimedRequest, chat, completion, generate
from loadgen.trace import ChatRecord, TraceRecord
from loadgen.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TraceRequests:
    """How records become requests: blocks in the form asked for, chats as chats.

    Attributes:
        max_output_tokens: longer outputs are cut to it; None leaves them.
    """

    model: str
    vocabulary: Vocabulary
    synthesis: BlockSynthesis
    form: PromptForm = PromptForm.TOKENS
    max_output_tokens: int | None = None

    def of(self, records: Iterable[TraceRecord | ChatRecord]) -> Iterator[TimedRequest]:
        """One request a record, in the order given.

        Raises:
            SynthesisError: a prompt does not survive being text.
        """
        for record in records:
            if isinstance(record, ChatRecord):
                path, body = chat(self.model, record.messages, self._cut(record.max_tokens))
            else:
                path, body = self._call(record)
            yield TimedRequest(record.timestamp_ms / 1e3, path, body)

    def _call(self, record: TraceRecord) -> tuple[str, bytes]:
        tokens = self.synthesis.tokens(record)
        max_tokens = self._cut(max(1, record.output_length))
        match self.form:
            case PromptForm.TOKENS:
                return completion(self.model, tokens, max_tokens)
            case PromptForm.TEXT:
                return completion(self.model, self.vocabulary.text(tokens), max_tokens)
            case PromptForm.CHAT:
                message = {"role": "user", "content": self.vocabulary.text(tokens)}
                return chat(self.model, [message], max_tokens)
            case PromptForm.GENERATE:
                return generate(tokens, max_tokens)
        assert_never(self.form)

    def _cut(self, max_tokens: int | None) -> int | None:
        if max_tokens is None or self.max_output_tokens is None:
            return max_tokens or self.max_output_tokens
        return min(max_tokens, self.max_output_tokens)
