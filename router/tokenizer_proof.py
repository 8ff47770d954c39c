"""Whether the router makes the tokens that an engine makes, asked of the engine itself when it is learned.

A few short prompts tell: a text, and chats for engines that render chats for others. They also show whether the
engine may be asked where nothing can be made here. An engine that does not answer proves nothing.
"""

from dataclasses import dataclass

import orjson

from prompt import (
    FURTHER_PROBES,
    PARITY_PROBES,
    Api,
    AskedKind,
    NoTokensError,
    NoTokensReason,
    PromptModel,
    RequestView,
    tokenize_body,
    view_request,
)
from protocol import EngineKind, TokenBytes, WorkerSpec
from router.engine_tokens import Route
from router.tokenize_route import TokenizeError


@dataclass(frozen=True, slots=True)
class Proof:
    """What one engine showed.

    Attributes:
        takes_texts: it tokenizes texts for others.
        takes_chats: and chats.
        difference: how its tokens differ from the router's own; None where they do not, or there are none.
        follows: it makes of further chats, too, the tokens that the router has for its kind.
    """

    takes_texts: bool = False
    takes_chats: bool = False
    difference: str | None = None
    follows: bool = False


class Prover:
    """Asks engines.

    Args:
        timeout_s: of each call.
    """

    def __init__(self, route: Route, timeout_s: float) -> None:
        self._route = route
        self._timeout_s = timeout_s

    async def prove(self, spec: WorkerSpec, model: PromptModel | None) -> Proof | None:
        """Ask the engine; None where it does not answer, which proves nothing. As many calls as there are probes.

        Args:
            model: what its prompts are tokenized with here; None for nothing.
        """
        taken: set[Api] = set()
        difference: str | None = None
        own = None if model is None else model.for_engines({spec.engine})
        kind = AskedKind.SGLANG if spec.engine is EngineKind.SGLANG else AskedKind.VLLM
        for api, what, fields in PARITY_PROBES:
            view = view_request(api, orjson.dumps({"model": spec.model, **fields}))
            body = tokenize_body(view, kind)
            try:
                told = await self._route.tokenize(spec.url, body, self._timeout_s)
            except TokenizeError as error:
                if error.is_refusal or (error.is_broken and taken):
                    continue
                return None
            if told.tokens is None:
                break
            taken.add(api)
            if own is not None and difference is None:
                difference = _difference(own, view, what, told.tokens)
        takes_chats = Api.CHAT in taken
        is_asked_on = own is not None and takes_chats and difference is None
        if model is None or not is_asked_on or kind is not AskedKind.SGLANG:
            return Proof(Api.COMPLETIONS in taken, takes_chats, difference)
        follows = await self._follows(spec, model.for_engines({spec.engine}, follows_sglang=True))
        return Proof(Api.COMPLETIONS in taken, takes_chats, difference, follows)

    async def _follows(self, spec: WorkerSpec, own: PromptModel) -> bool:
        """Whether the engine makes the same of further chats; what both refuse is the same."""
        for _, fields in FURTHER_PROBES:
            view = view_request(Api.CHAT, orjson.dumps({"model": spec.model, **fields}))
            try:
                ours: TokenBytes | None = own.prompt_tokens(view).tokens
            except NoTokensError as error:
                if error.reason is not NoTokensReason.TEMPLATE_FAILED:
                    return False
                ours = None
            try:
                body = tokenize_body(view, AskedKind.SGLANG)
                theirs = (await self._route.tokenize(spec.url, body, self._timeout_s)).tokens
            except TokenizeError as error:
                if not error.is_refusal:
                    return False
                theirs = None
            if ours != theirs:
                return False
        return True


def _difference(own: PromptModel, view: RequestView, what: str, theirs: TokenBytes) -> str | None:
    try:
        ours = own.prompt_tokens(view).tokens
    except NoTokensError:
        return None
    if ours == theirs:
        return None
    return (
        f"the engine makes {len(theirs) // 4} tokens of {what}, the router {len(ours) // 4} others"
    )
