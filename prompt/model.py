"""One model's way from request to tokens: chat template and tokenizer, applied as the engine applies them.

    chat                  template, then tokens as they stand: the template holds the start token itself
    responses, messages   as the chats that engines make of them (`chat_body`)
    completions           text with the model's own special tokens (start token); ids as they are
    generate              text as for completions; ids as they are

Text that users type is encoded as the engine encodes it: if it spells a special token it becomes one.
A chat with images has tokens up to its first one. A batch of prompts is routed on load (a batch of one is a prompt). A chat whose ids another engine has
made already (``kv_transfer_params.prompt_token_ids``) keeps those.

The rules are vLLM's; SGLang's are the same for plain chats and not known well enough beyond them, so a
model that SGLang serves, too, is used through `PromptModel.for_engines`.

Costs grow with the text: some tens of microseconds for 2 KB, a millisecond or more for 200 KB (a hundred
with the reference library). Long requests belong in a thread; models are thread-safe and encoding
releases the interpreter's lock.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from jinja2.exceptions import TemplateSyntaxError

from prompt.chat_body import ChatBody, chat_of_messages, chat_of_responses
from prompt.conversation import is_plain
from prompt.errors import NoTokensError, NoTokensReason, PromptModelError
from prompt.model_files import DEFAULT_TEMPLATE, TOOL_TEMPLATE, ModelFiles, read_model_files
from prompt.prefix_table import common_length
from prompt.prompt_tokens import PromptTokens
from prompt.single_prompt import (
    packed_ids,
    refuse_further_content,
    single_prompt,
    transferred_ids,
)
from prompt.template import ChatTemplate
from prompt.token_memo import TokenMemo, remembering
from prompt.tokenizer import Tokenizer, TokenizerChoice, load_tokenizer, unpack_tokens
from prompt.view import Api, RequestView
from protocol import EngineKind, TokenBytes

logger = logging.getLogger(__name__)

MAX_TEXT_CHARS = 32 << 20
"""Longest text that is encoded; beyond it a request is routed on load."""


class PromptModel:
    """One model's template and tokenizer.

    Attributes:
        name: as it was loaded; the name of the directory unless another was given.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        templates: Mapping[str, ChatTemplate],
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        takes_plain_chats_only: bool = False,
        follows_sglang: bool = False,
    ) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._templates = templates
        self._clock_ns = clock_ns
        self._takes_plain_chats_only = takes_plain_chats_only
        self._follows_sglang = follows_sglang

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        tokenizer: TokenizerChoice = TokenizerChoice.AUTO,
        name: str | None = None,
        memo: TokenMemo | None = None,
    ) -> "PromptModel":
        """Load a model directory; up to seconds for a large vocabulary, so not in an event loop.

        Args:
            memo: where the tokens of long chats are kept, if the tokenizer allows it (`remembering`).

        Raises:
            PromptModelError: a file is missing or not what it should be; the message names it.
        """
        files = read_model_files(directory)
        templates = _compile_templates(directory, files)
        loaded = load_tokenizer(files.tokenizer, tokenizer)
        name = name or directory.name
        if memo is None:
            return cls(name, loaded, templates)
        found = remembering(loaded, files.written(), memo)
        if isinstance(found, str):
            logger.info("%s: growing chats are encoded anew each time: %s", name, found)
            return cls(name, loaded, templates)
        return cls(name, found, templates)

    def for_engines(
        self, engines: Collection[EngineKind], *, follows_sglang: bool = False
    ) -> "PromptModel":
        """This model as engines of all these kinds serve it: a chat that they may render differently has
        no tokens. Shares template and tokenizer.

        Args:
            follows_sglang: all of them are SGLang, and render further chats as is done here (`sglang_chat`).
        """
        if EngineKind.SGLANG not in engines:
            return self
        return PromptModel(
            self.name,
            self._tokenizer,
            self._templates,
            clock_ns=self._clock_ns,
            takes_plain_chats_only=True,
            follows_sglang=follows_sglang,
        )

    @property
    def backend(self) -> str:
        """The library that encodes: fastokens or tokenizers."""
        return self._tokenizer.backend

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self._tokenizer.vocab_size

    def prompt_tokens(self, view: RequestView) -> PromptTokens:
        """The tokens of a request's prompt, those before its first image where it has one; O(prompt).

        Raises:
            NoTokensError: they cannot be told here; the reason says why.
        """
        refuse_further_content(view.body)
        match view.api:
            case Api.CHAT:
                return self._chat_tokens(view.body)
            case Api.COMPLETIONS | Api.GENERATE:
                return self._prompt_tokens(view)
            case Api.MESSAGES:
                return self._tokens_of_other(chat_of_messages(view.body))
            case Api.RESPONSES:
                return self._tokens_of_other(chat_of_responses(view.body))
            case _:
                raise NoTokensError(
                    NoTokensReason.UNSUPPORTED_API, f"{view.api} is rendered by the engine alone"
                )

    def whole_prompt(self, view: RequestView) -> PromptTokens:
        """The same, for who needs all of them: a prompt with images has none.

        Raises:
            NoTokensError: they cannot be told here; the reason says why.
        """
        prompt = self.prompt_tokens(view)
        if prompt.is_cut:
            raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "a part of content is not text")
        return prompt

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text; O(text).

        Raises:
            ValueError: the text holds a lone surrogate.
        """
        return unpack_tokens(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens written out."""
        return self._tokenizer.decode(token_ids)

    def render_chat(self, body: Mapping[str, object]) -> str:
        """The prompt text of a chat body.

        Raises:
            NoTokensError: the body is no chat that the model's template can render.
        """
        return self._template_of(body).render(body)

    def _template_of(self, body: Mapping[str, object]) -> ChatTemplate:
        has_tools = body.get("tools") is not None and TOOL_TEMPLATE in self._templates
        template = self._templates.get(TOOL_TEMPLATE if has_tools else DEFAULT_TEMPLATE)
        if template is None:
            raise NoTokensError(NoTokensReason.NO_TEMPLATE, f"{self.name} has no chat template")
        return template

    def _tokens_of_other(self, chat: ChatBody) -> PromptTokens:
        """Those of a chat that came in the form of another API."""
        if self._takes_plain_chats_only and not chat.is_alike:
            raise NoTokensError(
                NoTokensReason.UNSUPPORTED_CONTENT, "engines make different chats of it"
            )
        return self._chat_tokens(chat.body, is_own=False)

    def _chat_tokens(self, body: Mapping[str, object], *, is_own: bool = True) -> PromptTokens:
        """Those of a chat; ``is_own``: it came as one."""
        is_alike = not self._takes_plain_chats_only or self._is_alike(body)
        if not is_alike and not (self._follows_sglang and is_own):
            return self._tokens_before_item(body)
        ids = None if self._follows_sglang else transferred_ids(body)
        if ids is not None:
            return PromptTokens(packed_ids(ids), 0, 0)
        begin = self._clock_ns()
        try:
            text = self.render_chat(body) if is_alike else self._render_sglang(body)
        except NoTokensError as error:
            if error.reason is not NoTokensReason.UNSUPPORTED_CONTENT:
                raise
            return self._tokens_before_item(body)
        rendered = self._clock_ns()
        is_special = is_alike and body.get("add_special_tokens") is True
        tokens = self._encode(text, add_special_tokens=is_special)
        return PromptTokens(
            tokens, (rendered - begin) // 1000, (self._clock_ns() - rendered) // 1000
        )

    def _render_sglang(self, body: Mapping[str, object]) -> str:
        """As SGLang renders it, which picks a template by no tools."""
        if TOOL_TEMPLATE in self._templates:
            raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "there are several templates")
        return self._template_of(body).render_sglang(body)

    def _is_alike(self, body: Mapping[str, object]) -> bool:
        """Whether every engine renders the chat alike."""
        if not is_plain(body):
            return False
        messages = body["messages"]
        return isinstance(messages, list) and self._template_of(body).is_alike(messages)

    def _tokens_before_item(self, body: Mapping[str, object]) -> PromptTokens:
        """Those that come before the first item that is not text, whatever it is."""
        begin = self._clock_ns()
        before = self._template_of(body).render_before_item(body)
        if before is None or (self._takes_plain_chats_only and not before.is_plain):
            raise NoTokensError(
                NoTokensReason.UNSUPPORTED_CONTENT,
                "engines that serve the model differ on such chats",
            )
        rendered = self._clock_ns()
        is_special = body.get("add_special_tokens") is True
        tokens = self._encode(before.text, add_special_tokens=is_special)
        whole = self._encode(before.whole, add_special_tokens=is_special)
        length = (
            common_length(tokens, whole) // 4 * 4
        )  # the item may become one token with its neighbour
        if not length:
            raise NoTokensError(NoTokensReason.UNSUPPORTED_CONTENT, "nothing comes before the item")
        render_us, tokenize_us = rendered - begin, self._clock_ns() - rendered
        cut = TokenBytes(tokens[:length])
        return PromptTokens(cut, render_us // 1000, tokenize_us // 1000, is_cut=True)

    def _prompt_tokens(self, view: RequestView) -> PromptTokens:
        prompt = single_prompt(view)
        if not isinstance(prompt, str):
            return PromptTokens(prompt, 0, 0)
        begin = self._clock_ns()
        is_special = view.body.get("add_special_tokens") is not False
        tokens = self._encode(prompt, add_special_tokens=is_special)
        return PromptTokens(tokens, 0, (self._clock_ns() - begin) // 1000)

    def _encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        if len(text) > MAX_TEXT_CHARS:
            raise NoTokensError(NoTokensReason.TOO_LONG, "the text is too long to be encoded")
        try:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except ValueError as error:
            raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "the text is not Unicode") from error


def _compile_templates(directory: Path, files: ModelFiles) -> dict[str, ChatTemplate]:
    templates: dict[str, ChatTemplate] = {}
    for name, source in files.templates.items():
        try:
            templates[name] = ChatTemplate(source, files.special_tokens)
        except TemplateSyntaxError as error:
            raise PromptModelError(
                f"{directory}: chat template {name!r}, line {error.lineno}: {error.message}"
            ) from error
    return templates
