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
    headers = [*refusal.headers(), *more, (b"connection", b"close")]
    await answer.begin(refusal.status, headers)
    await answer.write(refusal.body())
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            await discard_body(receive, linger_bytes)
    await answer.finish()
