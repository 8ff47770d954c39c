"""Read what routing needs from a request's body: the view of it, and the prompt's tokens.

Small bodies are read on the event loop, where it costs less than a thread's round trip; large ones in a
thread, so that no stream waits for them. A body without tokens here is still served, by load alone, and
counted with its reason.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple, Unpack

from prompt import (
    Api,
    GivenIds,
    MalformedRequestError,
    NoTokensError,
    NoTokensReason,
    PromptTokens,
    RequestView,
    approximate_tokens,
    view_request,
)
from protocol import TokenBytes
from router.counters import DataCounters, UnroutedReason
from router.engine_tokens import EngineTokens
from router.errors import ErrorKind, FrontDoorError
from router.form_model import form_model
from router.headers import RequestHead
from router.short_work import SHORT_BYTES
from router.token_ids_field import with_token_ids

_Given = TypeVarTuple("_Given")
_Made = TypeVar("_Made")


class PromptTokenizer(Protocol):
    """Makes tokens of the prompts of one model."""

    def prompt_tokens(self, view: RequestView) -> PromptTokens:
        """The tokens of a request's prompt.

        Raises:
            NoTokensError: they cannot be told here; the reason says why.
        """


class PromptModelSource(Protocol):
    """Knows how each model's prompts become tokens."""

    def prompt_model(self, name: str | None) -> PromptTokenizer | None:
        """By the name that a request uses; a request without one means the only model there is."""


_APPROXIMATED = frozenset(
    {
        NoTokensReason.NO_TOKENIZER,
        NoTokensReason.NOT_TOKENIZED,
        NoTokensReason.NO_TEMPLATE,
        NoTokensReason.OWN_TEMPLATE,
        NoTokensReason.UNSUPPORTED_API,
        NoTokensReason.UNSUPPORTED_CONTENT,
    }
)
"""Why an engine may have tokens where there are none here: those of alike prompts begin alike all the same."""
_UNKNOWN_MODEL = GivenIds(reads_transferred=False)


class ReadRequest(NamedTuple):
    """What was read.

    Attributes:
        view: None where the body was not read.
        tokens: None where the request goes by load alone.
        is_cut: these are the tokens before the prompt's first image, not all of them.
        timing_us: microseconds by stage.
        is_approximate: these only stand for the prompt's tokens, which are not known.
        body: what goes on in place of the client's; None where that does.
    """

    view: RequestView | None = None
    tokens: TokenBytes | None = None
    timing_us: Mapping[str, int] = MappingProxyType({})
    unrouted: str | None = None
    is_cut: bool = False
    body: bytes | None = None
    is_approximate: bool = False


class PromptReader:
    """Reads bodies. The executor's queue is bounded by the front door's limit of requests in flight.

    Args:
        asked: makes tokens where no tokenizer is known; None for nobody.
        approximates: places prompts without tokens by stand-ins for them.
        takes_ids: whether engines of a model are given the tokens of chats; None where none is.
    """

    def __init__(
        self,
        models: PromptModelSource,
        executor: Executor,
        counters: DataCounters,
        asked: EngineTokens | None = None,
        takes_ids: Callable[[str | None], bool] | None = None,
        *,
        approximates: bool = False,
    ) -> None:
        self._approximates = approximates
        self._takes_ids = takes_ids
        self._models = models
        self._asked = asked
        self._executor = executor
        self._counters = counters

    async def read(self, api: Api, head: RequestHead, body: bytes) -> ReadRequest:
        """Read one request's body.

        Raises:
            FrontDoorError: the body of a routed API is no JSON object.
        """
        if api is Api.OTHER and not head.is_json:
            return await self._read_form(head, body)
        if head.is_encoded:
            found = ReadRequest(unrouted=UnroutedReason.ENCODED_BODY)
        else:
            found = await self.read_body(api, body)
        if found.unrouted is not None and api is not Api.OTHER:
            self._counters.unrouted[found.unrouted] += 1
        self._counters.cut_prompts += found.is_cut
        self._counters.approximate_prompts += found.is_approximate
        return found

    async def _read_form(self, head: RequestHead, body: bytes) -> ReadRequest:
        """Read the model that a form names; nothing of what is no form, or of two types."""
        types = [value for name, value in head.forwarded if name == b"content-type"]
        if len(types) != 1 or head.is_encoded or not body:
            return ReadRequest()
        found = await self.off_loop(len(body), form_model, types[0], body)
        return ReadRequest() if found is None else ReadRequest(_view_named(found.model))

    async def read_body(self, api: Api, body: bytes) -> ReadRequest:
        """Read a plain body, and ask an engine where nothing else helps; counts nothing of the request.

        Raises:
            FrontDoorError: the body of a routed API is no JSON object.
        """
        if len(body) <= SHORT_BYTES:
            found = self.read_now(api, body)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._executor, self.read_now, api, body)
        if found.unrouted is NoTokensReason.NO_TOKENIZER and self._asked is not None:
            found = await _ask(self._asked, found, len(body))
        if self._approximates and found.unrouted in _APPROXIMATED:
            return await self.off_loop(len(body), _approximated, found)
        return found

    async def off_loop(
        self, size_bytes: int, work: Callable[[Unpack[_Given]], _Made], *given: *_Given
    ) -> _Made:
        """What the work makes of what it is given: at once where that is short, else in a thread.

        Args:
            size_bytes: of the body that it goes through.
        """
        if size_bytes <= SHORT_BYTES:
            return work(*given)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, work, *given)

    def read_now(self, api: Api, body: bytes) -> ReadRequest:
        """Read a body on the calling thread; counts nothing.

        Raises:
            FrontDoorError: the body of a routed API is no JSON object.
        """
        try:
            view = view_request(api, body)
        except MalformedRequestError as error:
            if api is Api.OTHER:
                return ReadRequest()
            raise FrontDoorError(ErrorKind.MALFORMED, str(error)) from error
        if api is Api.OTHER:
            return ReadRequest(view)
        model = self._models.prompt_model(view.model) or _UNKNOWN_MODEL
        try:
            prompt = model.prompt_tokens(view)
        except NoTokensError as error:
            return ReadRequest(view, unrouted=error.reason)
        timing_us = {"render": prompt.render_us, "tokenize": prompt.tokenize_us}
        read = ReadRequest(view, prompt.tokens, timing_us, is_cut=prompt.is_cut)
        return read if self._takes_ids is None else self._with_ids(read, prompt.tokens, body)

    def _with_ids(self, read: ReadRequest, tokens: TokenBytes, body: bytes) -> ReadRequest:
        """The same, with the tokens put into a chat whose engines take them."""
        view = read.view
        assert view is not None, "what was not read has no tokens"
        assert self._takes_ids is not None
        if view.api is not Api.CHAT or read.is_cut or "kv_transfer_params" in view.body:
            return read
        return (
            read._replace(body=with_token_ids(body, tokens))
            if self._takes_ids(view.model)
            else read
        )


async def _ask(asked: EngineTokens, found: ReadRequest, size_bytes: int) -> ReadRequest:
    """What was read, with the tokens that an engine makes of it."""
    assert found.view is not None
    try:
        prompt = await asked.prompt_tokens(found.view, size_bytes)
    except NoTokensError as error:
        return found._replace(unrouted=error.reason)
    return ReadRequest(found.view, prompt.tokens, {"tokenize": prompt.tokenize_us})


def _view_named(model: str | None) -> RequestView:
    """The view of a request of which nothing but its model is known."""
    return RequestView(
        api=Api.OTHER,
        model=model or None,
        is_streaming=False,
        max_output_tokens=None,
        cache_salt=None,
        adapter=None,
        extra_key=None,
        session_id=None,
        body={},
    )


def _approximated(found: ReadRequest) -> ReadRequest:
    """What was read, with stand-ins for its tokens if it has any."""
    assert found.view is not None
    tokens = approximate_tokens(found.view)
    if tokens is None:
        return found
    return ReadRequest(found.view, tokens, is_approximate=True)
