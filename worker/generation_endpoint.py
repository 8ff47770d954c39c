"""The routes that generate, as raw ASGI: body in, tokens out, gone when the client is.

A client that leaves, in any phase, ends its request in the engine at once. Headers go out with the
first token, so that whatever is refused before gets its own status.
"""

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from prompt import Api
from worker.api_error import CALLER_FAULTS, ApiError, api_error
from worker.body import ClientGoneError, read_body
from worker.call import Call, CallReader
from worker.openai_format import DONE, ChatFormat, CompletionFormat
from worker.progress import AnswerFormat, Progress
from worker.rank import Answer, AnswerCutError, EngineFailedError
from worker.ranks import RankSet
from worker.sglang_format import GenerateFormat
from worker.vocabulary import Vocabulary

RawHeaders = list[tuple[bytes, bytes]]

STOPPING = ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "The worker stops.")
FAILED = ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "The engine failed.")


class GenerationEndpoint:
    """One route of one API."""

    def __init__(
        self,
        api: Api,
        reader: CallReader,
        ranks: RankSet,
        vocabulary: Vocabulary,
        max_body_bytes: int,
    ) -> None:
        self._api = api
        self._reader = reader
        self._ranks = ranks
        self._vocabulary = vocabulary
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            body = await read_body(receive, self._max_body_bytes)
            call = await self._reader.read(self._api, body, Headers(scope=scope))
            runner = self._ranks.choose(call.dp_rank)
            async with self._ranks.storage_at_hand(runner, call.request):
                with runner.opened(call.request) as answer:
                    written = self._format(call, runner.dp_rank)
                    await while_connected(receive, self._answer(call, answer, written, send))
        except ClientGoneError:
            return
        except CALLER_FAULTS as fault:
            await send_error(send, api_error(fault))
        except ApiError as error:
            await send_error(send, error)

    def _format(self, call: Call, dp_rank: int) -> AnswerFormat:
        match self._api:
            case Api.CHAT:
                return ChatFormat(call)
            case Api.COMPLETIONS:
                return CompletionFormat(call)
            case _:
                return GenerateFormat(call, dp_rank)

    async def _answer(self, call: Call, answer: Answer, written: AnswerFormat, send: Send) -> None:
        progress = Progress(self._vocabulary)
        try:
            progress.add(await answer.tokens())
            if call.view.is_streaming:
                await _stream(call, answer, written, progress, send)
                return
            while progress.finish is None:
                progress.add(await answer.tokens())
        except AnswerCutError as cut:
            await send_error(send, _error_of(cut))
            return
        await send_whole(send, 200, written.whole(progress), _headers(call, b"application/json"))


async def _stream(
    call: Call, answer: Answer, written: AnswerFormat, progress: Progress, send: Send
) -> None:
    """Go on from the first tokens."""
    headers = _headers(call, b"text/event-stream; charset=utf-8")
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    part = written.opening() + written.chunk(progress)
    while progress.finish is None:
        await send({"type": "http.response.body", "body": part, "more_body": True})
        try:
            progress.add(await answer.tokens())
        except AnswerCutError as cut:
            await send({"type": "http.response.body", "body": _cut_end(cut)})
            return
        part = written.chunk(progress)
    await send({"type": "http.response.body", "body": part + written.closing(progress)})


def _error_of(cut: AnswerCutError) -> ApiError:
    return FAILED if isinstance(cut, EngineFailedError) else STOPPING


def _cut_end(cut: AnswerCutError) -> bytes:
    """End of a stream that was cut: an error event, then the end marker, as vLLM ends one."""
    return b"data: %s\n\n%s" % (_error_of(cut).body(), DONE)


async def while_connected(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Run ``work``; cancel it when the client leaves."""
    async with asyncio.TaskGroup() as group:
        job = group.create_task(work)
        watch = group.create_task(_cancel_at_disconnect(receive, job))
        job.add_done_callback(lambda _: watch.cancel())


async def _cancel_at_disconnect(receive: Receive, job: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    job.cancel()


async def send_error(send: Send, error: ApiError) -> None:
    """Answer with an OpenAI error body."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    headers.append((b"content-type", b"application/json"))
    await send_whole(send, error.status.value, error.body(), headers)


async def send_whole(send: Send, status: int, body: bytes, headers: RawHeaders) -> None:
    """Answer with one body."""
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(call: Call, content_type: bytes) -> RawHeaders:
    return [(b"content-type", content_type), (b"x-request-id", call.client_id.encode())]
