"""Requests for every worker at once: an abort names a request by an id that only the engine which runs it knows.

Engines ignore ids that are not theirs, so all that are known are asked, at most ``MAX_AT_ONCE`` at a time and each for
``TIMEOUT_S``. The client gets the best answer: a good one if any worker gave one, else what the first that answered said.
Nothing is booked, for nothing is computed.

Source: SGLang 0.5.23 ``/abort_request``; vLLM 0.32.0 ``/abort_requests``.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from router.answer import Answer
from router.errors import ErrorKind, FrontDoorError
from router.forward import Forward
from router.headers import REQUEST_ID, RawHeader, header, read_answer_head
from router.relay import Relay
from router.upstream import UpstreamError

MAX_AT_ONCE = 32
TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024
_PATHS = frozenset({"/abort_request", "/abort_requests"})


class _Told(NamedTuple):
    status: int
    content_type: bytes
    body: bytes


def is_for_all(method: str, path: str) -> bool:
    """Is the request one for every worker?"""
    return method == "POST" and path.removesuffix("/") in _PATHS


async def ask_everywhere(
    relay: Relay, forward: Forward, urls: Iterable[str], answer: Answer
) -> None:
    """Send the request to each worker, and give the best answer.

    Raises:
        FrontDoorError: there is no worker, or none answered.
    """
    gate = asyncio.Semaphore(MAX_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(relay, forward, url, gate)) for url in urls]
    if not tasks:
        raise FrontDoorError(ErrorKind.NO_WORKER, "no worker is known at the moment")
    told = [one for task in tasks if (one := task.result()) is not None]
    if not told:
        raise FrontDoorError(ErrorKind.UNREACHABLE, "no worker answered")
    best = next((one for one in told if one.status < 300), told[0])
    headers: list[RawHeader] = [
        (b"content-type", best.content_type),
        (b"content-length", b"%d" % len(best.body)),
        (REQUEST_ID, forward.plan.request_id.encode()),
    ]
    await answer.whole(best.status, headers, best.body)


async def _ask(relay: Relay, forward: Forward, url: str, gate: asyncio.Semaphore) -> _Told | None:
    """What one worker says; None where it does not answer in time, or too much."""
    async with gate:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await _read(relay, forward, url)
        except (TimeoutError, UpstreamError):
            return None


async def _read(relay: Relay, forward: Forward, url: str) -> _Told | None:
    answer = await relay.upstream.send(
        forward.method, url + forward.target, forward.headers, forward.body
    )
    body = bytearray()
    try:
        while not answer.is_complete:
            body += await answer.read()
            if len(body) > MAX_ANSWER_BYTES:
                return None
    finally:
        answer.close()
    relayed = read_answer_head(answer.headers, answer.status).relayed
    content_type = header(relayed, b"content-type") or b"application/octet-stream"
    return _Told(answer.status, content_type, bytes(body))
