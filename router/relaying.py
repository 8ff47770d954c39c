"""One answer's way from a worker to its client, and what its end says of the attempt.

Chunks go on as they come and are not parsed on the way, but for the start of a stream, which tells when
content comes. A bounded copy of the end is read afterwards, for what the engine reports and for errors. An
answer that breaks off is told to the client, never mended, and never called a success.
"""

from router.answer import Answer
from router.answer_id import NamingTail
from router.errors import ErrorKind, FrontDoorError, sse_error
from router.forward import Forward
from router.headers import REQUEST_ID, AnswerHead, RawHeader, read_answer_head, without_base
from router.lease import Lease
from router.made_ids import Lost, MadeIds
from router.relay import Relay
from router.score_header import score_field
from router.stream_start import StreamStart, Verdict
from router.tail import Tail, Usage, has_error_event, read_usage
from router.upstream import Fault, UpstreamAnswer, UpstreamError
from scoring import Outcome, OutcomeKind, RankPin

BUSY_STATUSES = frozenset({429, 503})
"""What a worker answers that has no room: back-pressure, no fault."""

_SILENT = frozenset({Fault.TIMEOUT, Fault.UNHEALTHY})


class Relaying:
    """One answer to ``client``. ``run`` it once; the lease is ended by then, however the answer ended."""

    __slots__ = ("_client", "_forward", "_lease", "_relay")

    def __init__(self, relay: Relay, forward: Forward, lease: Lease, client: Answer) -> None:
        self._relay = relay
        self._forward = forward
        self._lease = lease
        self._client = client

    async def run(self, answer: UpstreamAnswer) -> None:
        """Pass the answer on as it comes."""
        head = read_answer_head(answer.headers, answer.status)
        relayed = head.relayed
        if head.has_location:
            relayed = without_base(relayed, self._lease.plan.url)
        fields = relayed + self._own_headers()
        is_readable = self._forward.reads_usage and not head.is_encoded
        tail = Tail() if is_readable or head.is_event_stream else None
        if self._forward.made is not None and answer.status < 300:
            tail = self._naming_tail(self._forward.made, head) or tail
        is_plain_stream = head.is_event_stream and not head.is_encoded
        start = StreamStart() if is_plain_stream and answer.status < 400 else None
        if answer.is_ended and self._client.takes_all:
            self._relay_whole(answer, fields, tail, start)
            return
        await self._client.begin(answer.status, fields)
        try:
            await self._relay_body(answer, tail, start)
        except UpstreamError as error:
            is_silent = error.fault in _SILENT
            kind = OutcomeKind.TIMED_OUT if is_silent else OutcomeKind.BROKEN_OFF
            self._lease.end(Outcome(kind))
            self._note_broken(error)
            if is_plain_stream and tail is not None and not head.has_length:
                await self._tell_broken(tail, error.fault)
            # The answer is left unfinished: the server aborts the transfer, so that the client can tell.

    def _naming_tail(self, made: MadeIds, head: AnswerHead) -> Tail | None:
        """A tail that learns the id of what was made; None where it cannot be read."""
        if head.is_encoded:
            made.lost[Lost.UNREADABLE] += 1
            return None
        worker = self._lease.plan.rank.worker
        return NamingTail(made, worker, self._relay.clock, is_stream=head.is_event_stream)

    def _relay_whole(
        self,
        answer: UpstreamAnswer,
        fields: list[RawHeader],
        tail: Tail | None,
        start: StreamStart | None,
    ) -> None:
        """Pass on an answer that has come whole. What it says is learned when it is on its way: nothing is waited
        for in between, so that the client's next request finds it learned."""
        chunk = answer.take_now()
        self._client.whole_now(answer.status, fields, chunk)
        self._look_at_first(chunk)
        self._look_at(chunk, tail, start)
        self._lease.end(self._outcome(answer.status, tail, start))

    async def _relay_body(
        self, answer: UpstreamAnswer, tail: Tail | None, start: StreamStart | None
    ) -> None:
        is_first = True
        while True:
            chunk = await (self._first_chunk(answer) if is_first else answer.read())
            if is_first and chunk:
                is_first = False
                self._look_at_first(chunk)
            self._look_at(chunk, tail, start)
            if answer.is_complete:
                self._lease.end(self._outcome(answer.status, tail, start))
                await self._client.finish(chunk)
                return
            await self._client.write(chunk)

    def _look_at_first(self, chunk: bytes) -> None:
        if chunk:
            now = self._relay.clock()
            self._relay.counters.ttft_s.observe(now - self._forward.started_at)

    def _look_at(self, chunk: bytes, tail: Tail | None, start: StreamStart | None) -> None:
        if start is not None and start.feed(chunk) is Verdict.CONTENT:
            self._lease.first_byte()
        if tail is not None:
            tail.append(chunk)

    async def _first_chunk(self, answer: UpstreamAnswer) -> bytes:
        """What comes after the head, if the worker has not stopped answering."""
        if answer.is_ended:
            return answer.take_now()
        with self._relay.outages.wait_for(self._lease.plan.rank.worker):
            return await answer.read()

    def _note_broken(self, error: UpstreamError) -> None:
        relay, request_id = self._relay, self._forward.plan.request_id
        relay.counters.broken_streams += 1
        worker = self._lease.plan.rank.worker
        relay.broken_answers.broke_off(request_id, worker, str(error), relay.clock())

    async def _tell_broken(self, tail: Tail, fault: Fault) -> None:
        """A last event that says so; the framing must leave room for it."""
        kind = ErrorKind.TIMED_OUT if fault in _SILENT else ErrorKind.BROKEN_OFF
        error = FrontDoorError(kind, "the worker broke off within its answer")
        event = sse_error(error, self._forward.plan.api)
        await self._client.write(event if tail.ends_event() else b"\n\n" + event)

    def _outcome(self, status: int, tail: Tail | None, start: StreamStart | None) -> Outcome:
        if status in BUSY_STATUSES:
            return Outcome(OutcomeKind.BUSY)
        if status >= 500:
            return Outcome(OutcomeKind.WORKER_ERROR)
        if status >= 400:
            return Outcome(OutcomeKind.CLIENT_ERROR)
        end = b"" if tail is None else tail.last_bytes()
        if start is not None and (start.verdict is Verdict.ERROR or has_error_event(end)):
            return Outcome(OutcomeKind.WORKER_ERROR)
        if tail is None or not self._forward.reads_usage:
            return Outcome(OutcomeKind.COMPLETED)
        if start is not None and start.verdict is Verdict.NOTHING_YET:
            return Outcome(OutcomeKind.WORKER_ERROR)  # a stream of nothing proves no prefill
        usage = read_usage(end)
        self._count_usage(usage)
        if start is not None and usage.output_tokens is not None and usage.output_tokens > 1:
            self._count_pace(usage.output_tokens)
        return Outcome(
            OutcomeKind.COMPLETED, usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
        )

    def _count_pace(self, output_tokens: int) -> None:
        """Time per output token, from the first content to the end: chunks are not told apart on the way."""
        since = self._lease.first_byte_at
        if since is not None:
            spent_s = self._relay.clock() - since
            self._relay.counters.token_s.observe(spent_s / (output_tokens - 1))

    def _count_usage(self, usage: Usage) -> None:
        if usage.cached_tokens is None:
            return
        counters = self._relay.counters
        counters.reported_cached_tokens += usage.cached_tokens
        counters.reported_prompt_tokens += usage.prompt_tokens or 0
        counters.predicted_cached_tokens += self._lease.plan.matched_tokens

    def _own_headers(self) -> list[RawHeader]:
        own = [(REQUEST_ID, self._forward.plan.request_id.encode())]
        if self._relay.names_worker:
            plan = self._lease.plan
            own.append((b"x-kvroute-worker", plan.rank.worker.encode()))
            if plan.pin is not RankPin.NONE:
                own.append((b"x-kvroute-dp-rank", b"%d" % plan.rank.dp_rank))
        if self._forward.shows_score:
            own.append(score_field(self._lease.plan))
        return own
