"""Tokens of prompts that only an engine can make: asked of its ``/tokenize``, for models without a tokenizer here.

    a prompt ─▶ made before? ─▶ an engine that answers ─▶ within the time limit ─▶ tokens
                                     │ none                    │ not
                                     └─────────── by load ◀────┘

Requests of other models never come by. What an engine made is kept, bounded in bytes; at the bound what was not asked
for the longest goes. At most 64 prompts are asked for at once, a further one goes by load. An engine that fails is
not asked again for a while, which doubles with each further failure up to five minutes.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, NoReturn, Protocol

from prompt import (
    AskedKind,
    NoTokensError,
    NoTokensReason,
    PromptTokens,
    RequestView,
    is_chat,
    tokenize_body,
)
from protocol import TokenBytes
from router.counters import DataCounters
from router.short_work import SHORT_BYTES
from router.tokenize_route import TokenizeError, Told

_MAX_ASKED = 64
_MAX_KEPT_BYTES = 32 << 20
_ENTRY_BYTES = 256
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
_MAX_PAUSES = 4096


class AskedEngine(NamedTuple):
    """An engine that tokenizes for others. ``takes_chats``: it renders chats, too."""

    url: str
    takes_chats: bool


class AskedModel(NamedTuple):
    """Who can be asked about a model's prompts.

    Attributes:
        kind: whose prompts they are.
    """

    name: str
    engines: Sequence[AskedEngine]
    kind: AskedKind


class Route(Protocol):
    """Reaches engines."""

    async def tokenize(self, url: str, body: bytes, timeout_s: float) -> Told:
        """The tokens of a prompt; raises TokenizeError."""


class AskedModels(Protocol):
    """Knows who can be asked."""

    def asked(self, name: str | None) -> AskedModel | None:
        """By the name that a request uses; None where nobody can, or nobody needs to be."""


@dataclass(slots=True)
class _Pause:
    """How long a failed engine is left alone."""

    until: float
    length_s: float


class EngineTokens:
    """Asks engines. Single owner of what they made, and of who failed."""

    def __init__(
        self,
        models: AskedModels,
        route: Route,
        counters: DataCounters,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        max_kept_bytes: int = _MAX_KEPT_BYTES,
    ) -> None:
        self._models = models
        self._route = route
        self._counters = counters
        self._timeout_s = timeout_s
        self._clock = clock
        self._max_kept_bytes = max_kept_bytes
        self._kept: dict[bytes, TokenBytes] = {}  # what was asked for last comes last
        self._kept_bytes = 0
        self._pauses: dict[str, _Pause] = {}
        self._num_asked = 0
        self._turn = 0

    async def prompt_tokens(self, view: RequestView, size_bytes: int = 0) -> PromptTokens:
        """The tokens of a prompt, within the time limit.

        Args:
            size_bytes: of the request's body; what is long is written and hashed in a thread.

        Raises:
            NoTokensError: nobody can be asked about it, or nobody answered; the reason says which.
        """
        model = self._models.asked(view.model)
        if model is None:
            raise NoTokensError(NoTokensReason.NO_TOKENIZER, "nobody can be asked")
        takes_all = not is_chat(view.api)
        able = [engine for engine in model.engines if takes_all or engine.takes_chats]
        if not able:
            raise NoTokensError(NoTokensReason.NO_TOKENIZER, "nobody can be asked about chats")
        started = self._clock()
        if size_bytes <= SHORT_BYTES:
            body, name = _question(view, model)
        else:
            body, name = await asyncio.to_thread(_question, view, model)
        tokens = self._kept.get(name)
        if tokens is not None:
            self._counters.asked["kept"] += 1
        else:
            self._counters.asked["asked"] += 1
            tokens = await self._ask(able, body)
        self._keep(name, tokens)
        return PromptTokens(tokens, 0, round((self._clock() - started) * 1e6))

    def check(self) -> None:
        """Verify the invariants."""
        kept_bytes = sum(len(tokens) + _ENTRY_BYTES for tokens in self._kept.values())
        assert self._kept_bytes == kept_bytes <= self._max_kept_bytes
        assert len(self._pauses) <= _MAX_PAUSES
        assert 0 <= self._num_asked <= _MAX_ASKED

    async def _ask(self, engines: Sequence[AskedEngine], body: bytes) -> TokenBytes:
        url = self._next(engines)
        if url is None or self._num_asked >= _MAX_ASKED:
            self._fail("no engine is to be asked now")
        self._num_asked += 1
        try:
            told = await self._route.tokenize(url, body, self._timeout_s)
        except TokenizeError as error:
            if not error.is_refusal:
                self._leave_alone(url)
            self._fail(str(error))
        finally:
            self._num_asked -= 1
        if told.tokens is None:
            self._leave_alone(url)
            self._fail("the engine tokenizes no more")
        self._pauses.pop(url, None)
        return told.tokens

    def _fail(self, why: str) -> NoReturn:
        self._counters.asked["failed"] += 1
        raise NoTokensError(NoTokensReason.NOT_TOKENIZED, why)

    def _next(self, engines: Sequence[AskedEngine]) -> str | None:
        """One of those that are not left alone, by turns."""
        now = self._clock()
        able = [
            engine.url
            for engine in engines
            if (pause := self._pauses.get(engine.url)) is None or pause.until <= now
        ]
        if not able:
            return None
        self._turn += 1
        return able[self._turn % len(able)]

    def _leave_alone(self, url: str) -> None:
        before = self._pauses.pop(url, None)
        length_s = _FIRST_PAUSE_S if before is None else min(2 * before.length_s, _LONGEST_PAUSE_S)
        if len(self._pauses) >= _MAX_PAUSES:
            del self._pauses[next(iter(self._pauses))]
        self._pauses[url] = _Pause(self._clock() + length_s, length_s)

    def _keep(self, name: bytes, tokens: TokenBytes) -> None:
        """As what was asked for last."""
        before = self._kept.pop(name, None)
        self._kept_bytes -= 0 if before is None else len(before) + _ENTRY_BYTES
        self._kept[name] = tokens
        self._kept_bytes += len(tokens) + _ENTRY_BYTES
        while self._kept_bytes > self._max_kept_bytes:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_bytes -= len(oldest) + _ENTRY_BYTES


def _question(view: RequestView, model: AskedModel) -> tuple[bytes, bytes]:
    """What the engine is asked, and under which name its answer is kept. O(prompt)."""
    body = tokenize_body(view, model.kind)
    return body, blake2b(body, key=model.name.encode()[:64], digest_size=16).digest()
