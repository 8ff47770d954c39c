"""One call of an engine's ``/tokenize``: a body there, token ids back, both bounded in size and in time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import orjson

from protocol import TokenBytes, TokenRangeError, pack_tokens
from router.dialer import Dialer
from router.headers import RawHeader
from router.hops import LOOP_STATUS, Hops
from router.short_work import SHORT_BYTES
from router.upstream import Upstream, UpstreamError, UpstreamTimeouts, open_upstream

_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_NO_SUCH_ROUTE = frozenset({404, 405, 501, LOOP_STATUS})


class TokenizeError(Exception):
    """The engine did not tokenize. The message says why.

    Attributes:
        is_refusal: it answered that it will not tokenize this prompt.
        is_broken: it answered that it failed on it.
    """

    def __init__(self, why: str, *, is_refusal: bool = False, is_broken: bool = False) -> None:
        super().__init__(why)
        self.is_refusal = is_refusal
        self.is_broken = is_broken


class Told(NamedTuple):
    """What the engine said. ``tokens`` is None where it has no such route."""

    tokens: TokenBytes | None


class TokenizeRoute:
    """Asks engines, over connections of its own that are not kept."""

    def __init__(self, upstream: Upstream, headers: Sequence[RawHeader]) -> None:
        self._upstream = upstream
        self._headers = headers

    async def tokenize(self, url: str, body: bytes, timeout_s: float) -> Told:
        """The tokens of a prompt.

        Raises:
            TokenizeError: no answer in time, or none that holds tokens.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask(url, body)
        except TimeoutError as error:
            raise TokenizeError(f"no whole answer within {timeout_s:g} s") from error
        except UpstreamError as error:
            raise TokenizeError(error.detail) from error
        except ValueError as error:
            raise TokenizeError(str(error)) from error

    async def _ask(self, url: str, body: bytes) -> Told:
        answer = await self._upstream.send("POST", f"{url}/tokenize", self._headers, body)
        try:
            if answer.status in _NO_SUCH_ROUTE:
                return Told(None)
            if not 200 <= answer.status < 300:
                is_refusal = 400 <= answer.status < 500 and answer.status not in (401, 403, 429)
                why, is_broken = f"it answers {answer.status}", answer.status == 500
                raise TokenizeError(why, is_refusal=is_refusal, is_broken=is_broken)
            text = bytearray()
            while not answer.is_complete:
                text += await answer.read()
                if len(text) > _MAX_ANSWER_BYTES:
                    raise TokenizeError(f"it answers more than {_MAX_ANSWER_BYTES} bytes")
        finally:
            answer.close()
        if len(text) <= SHORT_BYTES:
            return Told(_tokens_of(bytes(text)))
        return Told(await asyncio.to_thread(_tokens_of, bytes(text)))


@asynccontextmanager
async def open_tokenize_route(
    token: str | None, hops: Hops, connect_s: float, dialer: Dialer | None = None
) -> AsyncIterator[TokenizeRoute]:
    """A route.

    Args:
        token: sent as bearer token.
    """
    headers = [
        (b"Content-Type", b"application/json"),
        (b"Accept-Encoding", b"identity"),
        hops.field,
    ]
    if token is not None:
        headers.append((b"Authorization", f"Bearer {token}".encode()))
    limits = UpstreamTimeouts(connect_s, 60.0, 60.0)
    async with open_upstream(limits, dialer, max_idle=0) as upstream:
        yield TokenizeRoute(upstream, headers)


def _tokens_of(text: bytes) -> TokenBytes:
    """The ids in an answer.

    Raises:
        TokenizeError: there are none.
    """
    try:
        answer = orjson.loads(text)
        return pack_tokens(answer["tokens"])
    except (orjson.JSONDecodeError, KeyError, TypeError, TokenRangeError) as error:
        raise TokenizeError("its answer holds no token ids") from error
