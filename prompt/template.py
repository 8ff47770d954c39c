"""A model's chat template: chat body in, prompt text out, as the engine's own renderer makes it.

Templates run in jinja2's immutable sandbox with what engines give them: trimmed blocks, loop controls,
``generation`` blocks, a ``tojson`` that escapes nothing, ``raise_exception``, ``strftime_now`` and the
special tokens. A template that prints the date renders differently here and there across midnight or time
zones. Engines that render without a template (Mistral's, Harmony's, some of DeepSeek's formats) cannot be
followed here; parity with their events tells.

Templates come from the operator's model directories and are trusted not to loop for ever; chats are not
trusted. So messages are counted and measured before rendering, and rendering stops as soon as the text
outgrows its limit. At a limit the chat has no tokens (``too_long``) and is routed on load.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prompt.content_format import ContentFormat, content_format, sglang_content_format
from prompt.conversation import Conversation, Message, read_conversation
from prompt.errors import NoTokensError, NoTokensReason
from prompt.first_item import find_first_item, with_item
from prompt.member_code import DICT_ATTRIBUTES, MemberCode
from prompt.prefix_table import common_length
from prompt.sglang_chat import read_sglang_conversation

# The blank at the end shows whether the template trims the message.
_CUT_HERE = "THE-MESSAGE-GOES-ON-HERE "
_TEMPLATE_FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


_PROBES: tuple[Mapping[str, object], ...] = tuple(
    {"messages": [{"role": role, "content": f" {role}\n is heard "} for role in roles]}
    for roles in (("system", "user"), ("user",), ("user", "assistant", "user"))
)


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """How large a chat may be to be rendered, and how large its text may become."""

    messages: int = 20_000
    message_chars: int = 16 << 20
    prompt_chars: int = 32 << 20


class BeforeItem(NamedTuple):
    """What a chat's prompt has before its first image, or other item that is not text.

    Attributes:
        whole: the prompt with the item as the template writes it, before an engine makes tokens of it.
        is_plain: whether every engine renders ``text`` alike.
    """

    text: str
    whole: str
    is_plain: bool


class ChatTemplate:
    """One compiled template. Thread-safe: rendering keeps no state."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, object],
        *,
        limits: RenderLimits = RenderLimits(),
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile ``source``.

        Args:
            special_tokens: names that the template may use (``bos_token``, …) with their texts.
            clock: local time, for templates that print it.

        Raises:
            TemplateSyntaxError: the source is not a template.
        """
        environment = _environment(clock)
        self._template = environment.from_string(source)
        tree = environment.parse(source)
        self._content_format = content_format(tree)
        self._knows_developer = '"developer"' in source or "'developer'" in source
        constants = {**special_tokens, "documents": None}
        self._template.globals = dict(
            self._template.globals
        )  # a chain of maps is slow to go through
        self._constants = {**self._template.globals, **constants}
        self._limits = limits
        self._sglang_format = sglang_content_format(source, tree)
        is_strings = self._content_format is ContentFormat.STRING
        is_agreed = self._content_format is self._sglang_format
        is_either = (is_strings and is_agreed) or self._takes_either_form()
        self._strings_are_alike = is_strings or is_either
        self._lists_are_alike = is_agreed or is_either

    def is_alike(self, messages: Sequence[object]) -> bool:
        """Whether plain messages look alike in the forms in which different engines hand them over: vLLM in the one
        that the template wants, SGLang strings as strings and lists in the one that it takes to be wanted.
        O(messages), mostly O(1)."""
        if self._strings_are_alike and self._lists_are_alike:
            return True
        contents = [one.get("content") for one in messages if isinstance(one, Mapping)]
        return all(
            self._lists_are_alike if isinstance(one, list) else self._strings_are_alike
            for one in contents
        )

    def render(self, body: Mapping[str, object]) -> str:
        """The prompt text of a chat body; O(text).

        Raises:
            NoTokensError: the body is no chat that this template can render, or it is too long.
        """
        conversation = read_conversation(
            body, self._content_format, knows_developer=self._knows_developer
        )
        self._check_size(conversation)
        if conversation.is_continued:
            marked = _with_mark(conversation.messages)
            return _cut_at_mark(self._text(conversation, marked))
        return self._text(conversation, conversation.messages)

    def render_sglang(self, body: Mapping[str, object]) -> str:
        """The prompt text that SGLang makes of a chat body; O(text).

        Raises:
            NoTokensError: the body is no chat that this template can render, or it is too long, or what SGLang makes
                of it is not known.
        """
        conversation = read_sglang_conversation(body, self._sglang_format)
        self._check_size(conversation)
        return self._text(conversation, conversation.messages)

    def render_before_item(self, body: Mapping[str, object]) -> "BeforeItem | None":
        """The text before the first item that is not text; None where there is no such item. O(text).

        Raises:
            NoTokensError: the body is no chat that this template can render, or it is too long.
        """
        item = find_first_item(body, self._content_format)
        if item is None:
            return None
        conversation = read_conversation(
            item.body, self._content_format, knows_developer=self._knows_developer
        )
        self._check_size(conversation)
        marked = self._text(conversation, conversation.messages)
        whole = self._text(conversation, with_item(conversation.messages, item.kind))
        length = common_length(marked, whole)
        marked_ones = item.body["messages"]
        is_alike = isinstance(marked_ones, list) and self.is_alike(marked_ones)
        return BeforeItem(whole[:length], whole, item.is_plain and is_alike)

    def _takes_either_form(self) -> bool:
        """Whether messages look alike as strings and as parts: a few short chats are rendered in both forms."""
        rendered = [[self._or_none(chat, form) for form in ContentFormat] for chat in _PROBES]
        return all(one == other for one, other in rendered) and any(map(any, rendered))

    def _or_none(self, chat: Mapping[str, object], form: ContentFormat) -> str | None:
        conversation = read_conversation(chat, form, knows_developer=True)
        try:
            return self._text(conversation, conversation.messages)
        except NoTokensError:
            return None

    def _check_size(self, conversation: Conversation) -> None:
        limits = self._limits
        if (
            len(conversation.messages) > limits.messages
            or conversation.num_chars > limits.message_chars
        ):
            raise NoTokensError(NoTokensReason.TOO_LONG, "the messages are too many or too long")

    def _text(self, conversation: Conversation, messages: list[Message]) -> str:
        variables = {
            **self._constants,
            **conversation.variables,
            "messages": messages,
            "tools": conversation.tools,
            "add_generation_prompt": conversation.has_generation_prompt,
        }
        try:
            # The short way to what ``generate`` does: it merges the globals in anew for every text.
            template = self._template
            context = Context(template.environment, variables, template.name, template.blocks)
            return _join(template.root_render_func(context), self._limits.prompt_chars)
        except TemplateError as error:
            raise NoTokensError(NoTokensReason.TEMPLATE_FAILED, str(error)) from error
        except _TEMPLATE_FAULTS as error:
            raise NoTokensError(NoTokensReason.TEMPLATE_FAILED, type(error).__name__) from error


def _join(pieces: Iterator[str], max_chars: int) -> str:
    text: list[str] = []
    num_chars = 0
    for piece in pieces:
        num_chars += len(piece)
        if num_chars > max_chars:
            raise NoTokensError(NoTokensReason.TOO_LONG, "the rendered prompt is too long")
        text.append(piece)
    return "".join(text)


def _with_mark(messages: list[Message]) -> list[Message]:
    """The messages with a mark after the last text of the last one.

    Source: transformers' ``continue_final_message``.
    """
    last = messages[-1]
    content = last["content"]
    if isinstance(content, str):
        return [*messages[:-1], {**last, "content": content + _CUT_HERE}]
    if isinstance(content, list) and content:
        marked = {**content[-1], "text": content[-1]["text"] + _CUT_HERE}
        return [*messages[:-1], {**last, "content": [*content[:-1], marked]}]
    raise NoTokensError(NoTokensReason.NOT_A_PROMPT, "the last message has no text to go on with")


def _cut_at_mark(text: str) -> str:
    """The text before the mark; a template that trims its messages has trimmed the continued one, too."""
    place = text.rfind(_CUT_HERE.rstrip())
    if place < 0:
        raise NoTokensError(NoTokensReason.TEMPLATE_FAILED, "the template drops the last message")
    before = text[:place]
    return before if text.startswith(_CUT_HERE, place) else before.rstrip()


def _environment(clock: Callable[[], datetime]) -> "_Sandbox":
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: clock().strftime(form)
    return environment


class _Sandbox(ImmutableSandboxedEnvironment):
    """The immutable sandbox, with a short way to the members of plain dictionaries.

    The answers are the same; without it each ``message.role`` costs an exception raised and caught.
    """

    code_generator_class = MemberCode

    def getattr(self, obj: object, attribute: str) -> object:
        if type(obj) is dict and attribute not in DICT_ATTRIBUTES:
            if attribute in obj:
                return obj[attribute]
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        if type(obj) is dict and type(argument) is str and argument not in DICT_ATTRIBUTES:
            if argument in obj:
                return obj[argument]
            return self.undefined(obj=obj, name=argument)
        return super().getitem(obj, argument)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class _GenerationBlocks(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what a model is trained on; it renders as its body."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)
