"""Which pages of other origins browsers let read answers, where the router is told; else workers say so.

An application before the data port's. It answers browsers' preflights itself, and puts its own word into answers in place of
a worker's. It keeps no request away: browsers hide answers, and everybody else needs a key.

Source: the Fetch standard, "HTTP extensions".
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.answer import Answer
from router.config_section import Section
from router.config_sources import listed
from router.errors import ErrorKind, FrontDoorError
from router.headers import RawHeader, header
from router.request_record import record_of

_ORIGIN = r"^(\*|null|[a-z][a-z0-9+.-]*://[^/?#\s,]+)$"
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED = b"x-request-id, x-kvroute-worker, x-kvroute-dp-rank, x-kvroute-score, retry-after"
_PREFIX = b"access-control-"
_VARY = (b"vary", b"Origin")


class Cors(Section):
    """What browsers may do for pages of other origins. Credentials of browsers (cookies) are not taken; keys are.

    Attributes:
        origins: whose pages may ask, as `https://chat.example`; `*` for all. The router answers preflights itself then,
            and for no other origin. By default it has no say: preflights and answers of workers pass as they are, and
            its own answers let nobody in.
        max_age_s: that a browser may remember the answer to a preflight.
    """

    origins: Annotated[
        tuple[Annotated[str, Field(pattern=_ORIGIN)], ...] | None, NoDecode, BeforeValidator(listed)
    ] = None
    max_age_s: Annotated[int, Field(ge=0, le=86_400)] = 600


class CorsApp:
    """The ASGI application.

    Args:
        origins: that are let in; ``*`` for all.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str], max_age_s: int) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._lets_all_in = b"*" in self._origins
        self._max_age = b"%d" % max_age_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        origin = header(headers, b"origin")
        if origin is not None and scope["method"] == "OPTIONS":
            asked = header(headers, b"access-control-request-method")
            if asked is not None:
                fields = header(headers, b"access-control-request-headers")
                answer = Answer(send)
                await self._answer(answer, origin, fields)
                if (record := record_of(scope)) is not None:
                    record.refusal = answer.refused_as
                return
        own = [_VARY] if origin is None else self._fields(origin)

        async def send_ours(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [field for field in message["headers"] if field[0][:15] != _PREFIX]
                message = {**message, "headers": kept + own}
            await send(message)

        await self._app(scope, receive, send_ours)

    async def _answer(self, answer: Answer, origin: bytes, fields: bytes | None) -> None:
        """A preflight: everything may be asked for by who is let in."""
        own = self._fields(origin)
        if len(own) == 1:
            refusal = FrontDoorError(ErrorKind.NOT_ALLOWED, "pages of this origin may not ask")
            await answer.refuse(refusal, own)
            return
        own += [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", self._max_age),
        ]
        if fields is not None:
            own.append((b"access-control-allow-headers", fields))
        await answer.whole(204, own, b"")

    def _fields(self, origin: bytes) -> list[RawHeader]:
        if not self._lets_all_in and origin not in self._origins:
            return [_VARY]
        allowed = b"*" if self._lets_all_in else origin
        return [
            _VARY,
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", _EXPOSED),
        ]
