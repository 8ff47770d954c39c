"""Refuse a request of which not everything was read."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from starlette.types import Receive

from router.answer import Answer
from router.body import discard_body
from router.errors import FrontDoorError
from router.headers import RawHeader

_LINGER_S = 2.0


async def refuse_unread(
    answer: Answer,
    receive: Receive,
    refusal: FrontDoorError,
    more: Sequence[RawHeader],
    linger_bytes: int,
) -> None:
    """Answer, then drop what is still coming for a moment: a connection that is closed on unread bytes is
    reset, and the client might never see the answer."""
    answer.refused_as = refusal.kind
    headers = [*refusal.headers(), *more]
    await answer_unread(answer, receive, (refusal.status, headers, refusal.body()), linger_bytes)


async def answer_unread(
    answer: Answer,
    receive: Receive,
    whole: tuple[int, Sequence[RawHeader], bytes],
    linger_bytes: int,
) -> None:
    """The same with any answer: status, header section, body."""
    status, headers, body = whole
    await answer.begin(status, [*headers, (b"connection", b"close")])
    await answer.write(body)
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            await discard_body(receive, linger_bytes)
    await answer.finish()
