"""Open-loop replay over HTTP: each request starts at its time, whatever became of the others.

A closed loop sends less to a slow server and so hides its slowness; an open loop does not. Requests under
way are bounded all the same: one that is due while ``max_in_flight`` are under way is not sent, and is
counted as an error (``not_sent``), never put off. How late the generator itself was is measured with each
request. Requests are made in a thread, some ahead of their time, so that the loop which times the answers
does nothing else.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import aiohttp

from loadgen.answer import (
    Answer,
    BadAnswerError,
    ErrorKind,
    Reading,
    Usage,
    error_of_status,
    read_object,
)
from loadgen.draw_ahead import DrawnAhead
from loadgen.sse import OversizedEventError, SseParser
from loadgen.timed_request import TimedRequest

_MAX_BODY_BYTES = 16 << 20
_MAX_GAPS = 1 << 16


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a workload is sent.

    Attributes:
        url: base URL.
        speed: 2.0 sends a workload of ten seconds in five.
        timeout_s: of one whole request.
        max_in_flight: requests under way at once; see the module.
        headers: sent with each request.
    """

    url: str
    speed: float = 1.0
    timeout_s: float = 600.0
    max_in_flight: int = 1024
    headers: tuple[tuple[str, str], ...] = ()


async def replay(
    requests: Iterable[TimedRequest],
    options: ReplayOptions,
    *,
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> list[Answer]:
    """Send every request at its time and wait for all answers.

    Args:
        requests: in order of time; drawn in a thread, some ahead of their time, so that they may be made
            on the way.
        on_answer: called as each one ends, for progress.

    Returns:
        One answer a request, in order of time.

    Raises:
        Exception: whatever making a request raises; what is under way is given up.
    """
    answers: list[Answer] = []

    def done(answer: Answer) -> None:
        answers.append(answer)
        on_answer(answer)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=options.timeout_s),
        headers=options.headers,
    ) as session:
        try:
            await _send_all(session, requests, options, done)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
    return sorted(answers, key=lambda answer: answer.index)


async def _send_all(
    session: aiohttp.ClientSession,
    requests: Iterable[TimedRequest],
    options: ReplayOptions,
    done: Callable[[Answer], None],
) -> None:
    """The workload's time starts when its first request is made."""
    start: float | None = None
    under_way: set[int] = set()

    async def run(index: int, request: TimedRequest, due: float) -> None:
        late_ms = (time.perf_counter() - due) * 1e3
        try:
            done(await send(session, options.url, request, index=index, late_ms=late_ms))
        finally:
            under_way.discard(index)

    drawn = DrawnAhead(enumerate(requests))
    async with asyncio.TaskGroup() as group:
        group.create_task(drawn.draw())
        async for index, request in drawn:
            start = time.perf_counter() if start is None else start
            due = start + request.at_s / options.speed
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if len(under_way) >= options.max_in_flight:
                done(_blank(index, request, ErrorKind.NOT_SENT, "too many requests under way"))
                continue
            under_way.add(index)
            group.create_task(run(index, request, due))


async def send(
    session: aiohttp.ClientSession,
    url: str,
    request: TimedRequest,
    *,
    index: int = 0,
    late_ms: float = 0.0,
) -> Answer:
    """Send one request and read its answer to the end. Never raises for what the server does."""
    blank = replace(_blank(index, request), late_ms=late_ms)
    start = time.perf_counter()
    try:
        async with session.post(
            url + request.path,
            data=request.body,
            headers={"Content-Type": "application/json"},
        ) as response:
            answer = replace(
                blank,
                status=response.status,
                worker=response.headers.get("x-kvroute-worker"),
                request_id=response.headers.get("x-request-id"),
            )
            return await _read(response, answer, start)
    except TimeoutError:
        return _failed(blank, ErrorKind.TIMED_OUT, "no answer in time", start)
    except aiohttp.ClientConnectorError as error:
        return _failed(blank, ErrorKind.CONNECT_FAILED, str(error), start)
    except (aiohttp.ClientError, OSError) as error:
        return _failed(blank, ErrorKind.BROKEN_OFF, f"{type(error).__name__}: {error}", start)


async def _read(response: aiohttp.ClientResponse, answer: Answer, start: float) -> Answer:
    error = error_of_status(response.status)
    if error is not None:
        return _failed(answer, error, _words(await response.content.read(2048)), start)
    if response.content_type == "text/event-stream":
        return await _read_stream(response, answer, start)
    return await _read_whole(response, answer, start)


async def _read_whole(response: aiohttp.ClientResponse, answer: Answer, start: float) -> Answer:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            return _failed(answer, ErrorKind.BAD_ANSWER, "the answer is too long", start)
    elapsed_ms = (time.perf_counter() - start) * 1e3
    try:
        reading = read_object(bytes(body))
    except BadAnswerError as error:
        return _failed(answer, ErrorKind.BAD_ANSWER, str(error), start)
    if reading.error is not None:
        return _failed(answer, ErrorKind.SERVER_ERROR, reading.error, start)
    usage = reading.usage or Usage()
    return replace(answer, usage=usage, ttft_ms=elapsed_ms, total_ms=elapsed_ms)


async def _read_stream(response: aiohttp.ClientResponse, answer: Answer, start: float) -> Answer:
    """A stream has ended well with ``[DONE]`` and no error event before it."""
    parser, clock, is_done = SseParser(), _TokenClock(start), False
    error: str | None = None
    async for chunk in response.content.iter_any():
        now = time.perf_counter()
        try:
            for data in parser.feed(chunk):
                if data == b"[DONE]":
                    is_done = True
                else:
                    reading = read_object(data)
                    error = error or reading.error
                    clock.take(reading, now)
        except (BadAnswerError, OversizedEventError) as bad:
            return _failed(clock.measured(answer), ErrorKind.BAD_ANSWER, str(bad), start)
    measured = clock.measured(answer)
    if error is not None:
        return _failed(measured, ErrorKind.ERROR_IN_STREAM, error, start)
    if not is_done:
        return _failed(measured, ErrorKind.BROKEN_OFF, "the stream ended without [DONE]", start)
    return replace(measured, total_ms=(time.perf_counter() - start) * 1e3)


class _TokenClock:
    """Times of one stream's outputs, and the last usage it reported."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._ttft_ms: float | None = None
        self._last = start
        self._gaps: list[float] = []
        self._usage = Usage()

    def take(self, reading: Reading, now: float) -> None:
        self._usage = reading.usage or self._usage
        if not reading.has_output:
            return
        if self._ttft_ms is None:
            self._ttft_ms = (now - self._start) * 1e3
        elif len(self._gaps) < _MAX_GAPS:
            self._gaps.append((now - self._last) * 1e3)
        self._last = now

    def measured(self, answer: Answer) -> Answer:
        return replace(
            answer,
            ttft_ms=self._ttft_ms,
            inter_token_ms=tuple(self._gaps),
            usage=self._usage,
        )


def _blank(
    index: int, request: TimedRequest, error: ErrorKind | None = None, detail: str = ""
) -> Answer:
    return Answer(index, request.at_s, request.group, error=error, detail=detail)


def _failed(answer: Answer, error: ErrorKind, detail: str, start: float) -> Answer:
    total_ms = (time.perf_counter() - start) * 1e3
    return replace(answer, error=error, detail=detail[:200], total_ms=total_ms)


def _words(body: bytes) -> str:
    """What an error body says, in one line."""
    try:
        reading = read_object(body)
    except BadAnswerError:
        return body.decode(errors="replace").strip()
    return reading.error or body.decode(errors="replace").strip()
