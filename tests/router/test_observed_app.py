"""What is remembered of requests: how they ended, what went by; and nothing where nobody asks."""

import asyncio
import json
from hashlib import sha256

import pytest

from router.client_keys import ClientKeys
from router.connections import ConnectionEnd, ConnectionLimits
from router.cors import Cors
from router.data_app import DataLimits
from router.errors import ErrorKind
from router.key_config import ClientKeyEntry
from router.request_record import RequestEnd
from router.upstream import UpstreamTimeouts
from router.upstream_faults import Fault
from scoring import OutcomeKind, TooManyRequestsError
from tests.router.failing_workers import OK, close_within_chunks, reset_at_once
from tests.router.front_door import ask, connect, front_door
from tests.router.records import KeptRecords
from tests.router.stub_worker import (
    LAST_CHUNK,
    SSE_HEAD,
    Peer,
    Script,
    answering,
    chunk,
    response,
    stub_worker,
)

USAGE = b'{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens":7}}'
STREAM = SSE_HEAD + chunk(b"data: " + USAGE + b"\n\n") + LAST_CHUNK


CHAT = b'{"model":"m","messages":[],"stream":true}'


async def test_a_request_that_is_served_is_remembered_whole() -> None:
    kept = KeptRecords()
    async with (
        stub_worker(answering(STREAM)) as worker,
        front_door(worker.url, observers=[kept]) as door,
    ):
        answer = await ask(door, headers=[("x-request-id", "abc")], body=CHAT)
        record = await kept.only()
    assert (record.request_id, record.method, record.path) == (
        "abc",
        "POST",
        "/v1/chat/completions",
    )
    assert (record.api, record.status, record.end) == ("chat", 200, RequestEnd.COMPLETED)
    assert record.bytes_in == len(CHAT)
    assert record.bytes_out == len(answer.body)
    assert record.address == "127.0.0.1"
    (attempt,) = record.attempts
    assert attempt.outcome is not None
    assert attempt.outcome[1:] == (100, 64, 7)
    assert (attempt.status, attempt.num_sends, attempt.fault) == (200, 1, None)
    assert attempt.sent_at is not None
    assert attempt.head_at is not None
    assert attempt.first_byte_at is not None
    assert attempt.ended_at is not None
    assert record.first_byte_at is not None
    assert record.ended_at is not None
    times = [
        record.started_at,
        attempt.asked_at,
        attempt.planned_at,
        attempt.sent_at,
        attempt.head_at,
        attempt.first_byte_at,
        record.first_byte_at,
        record.ended_at,
    ]
    assert times == sorted(times)
    assert record.asked is not None
    assert record.asked.tokens is None, "a record keeps no prompt"
    assert record.chosen is not None
    assert (record.chosen.worker, record.chosen.matched_tokens) == ("w0", 8)


async def hang(peer: Peer) -> None:
    await peer.gone()


@pytest.mark.parametrize(
    ("script", "end", "status", "refusal"),
    [
        (OK, RequestEnd.COMPLETED, 200, None),
        (answering(response(status=404)), RequestEnd.CLIENT_ERROR, 404, None),
        (answering(response(status=429)), RequestEnd.BUSY, 429, None),
        (answering(response(status=500)), RequestEnd.WORKER_ERROR, 500, None),
        (reset_at_once, RequestEnd.BROKEN_OFF, 502, ErrorKind.BROKEN_OFF),
        (close_within_chunks, RequestEnd.BROKEN_OFF, 200, None),
        (hang, RequestEnd.TIMED_OUT, 504, ErrorKind.TIMED_OUT),
    ],
)
async def test_ends_that_workers_bring(
    script: Script, end: RequestEnd, status: int, refusal: ErrorKind | None
) -> None:
    kept = KeptRecords()
    timeouts = UpstreamTimeouts(1.0, 0.2, 0.2)
    async with (
        stub_worker(script) as worker,
        front_door(worker.url, observers=[kept], timeouts=timeouts) as door,
    ):
        await ask(door)
        record = await kept.only()
    assert (record.end, record.status, record.refusal) == (end, status, refusal)
    assert len(record.attempts) == 1


async def test_every_attempt_is_remembered() -> None:
    kept = KeptRecords()
    async with (
        stub_worker(reset_at_once) as bad,
        stub_worker(OK) as good,
        front_door(bad.url, good.url, observers=[kept]) as door,
    ):
        answer = await ask(door)
        record = await kept.only()
    assert answer.status == 200
    first, last = record.attempts
    assert first.outcome is not None
    assert last.outcome is not None
    assert (first.plan.rank.worker, first.outcome.kind) == ("w0", OutcomeKind.BROKEN_OFF)
    assert (first.fault, first.status) == (Fault.RESET, None)
    assert (last.plan.rank.worker, last.outcome.kind) == ("w1", OutcomeKind.COMPLETED)
    assert record.end is RequestEnd.COMPLETED


KEY = ClientKeyEntry(name="team-a", sha256=sha256(b"secret").hexdigest(), max_in_flight=1)


@pytest.mark.parametrize(
    ("headers", "body", "status", "error", "client"),
    [
        ([], CHAT, 401, ErrorKind.UNAUTHORIZED, None),
        ([("x-api-key", "wrong")], CHAT, 401, ErrorKind.UNAUTHORIZED, None),
        ([("x-api-key", "secret")], b"{no json", 400, ErrorKind.MALFORMED, "team-a"),
        ([("x-api-key", "secret")], b" " * 2000, 413, ErrorKind.BODY_TOO_LARGE, "team-a"),
        (
            [("x-api-key", "secret")],
            b'{"model":"other","messages":[]}',
            404,
            ErrorKind.MODEL_NOT_FOUND,
            "team-a",
        ),
    ],
)
async def test_what_is_refused_before_a_plan_is_remembered_too(
    headers: list[tuple[str, str]], body: bytes, status: int, error: ErrorKind, client: str | None
) -> None:
    kept = KeptRecords()
    limits = DataLimits(max_body_bytes=1000)
    async with (
        stub_worker(OK) as worker,
        front_door(
            worker.url, observers=[kept], keys=ClientKeys([KEY], None), limits=limits
        ) as door,
    ):
        answer = await ask(door, headers=headers, body=body)
        record = await kept.only()
    assert (answer.status, record.status) == (status, status)
    assert (record.end, record.refusal, record.client) == (RequestEnd.REFUSED, error, client)
    assert record.attempts == []
    assert record.all_waits() == []
    assert answer.values("x-request-id") == [record.request_id]


async def test_of_garbage_that_comes_in_one_piece_with_a_request_only_the_request_is_remembered() -> (
    None
):
    kept = KeptRecords()
    ok = answering(response(b"{}"))
    async with stub_worker(ok) as worker, front_door(worker.url, observers=[kept]) as door:
        async with connect(door.port) as client:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
            client.writer.write(head % len(CHAT) + CHAT + b"\0 garbage\r\n\r\n")
            assert (await client.answer()).status == 200
            assert await client.reader.read() == b""
        record = await kept.only()
    assert (record.status, record.end) == (200, RequestEnd.COMPLETED)
    assert door.guard.ended == {ConnectionEnd.MALFORMED: 1}


async def test_a_full_brain_and_a_fault_within_are_told_apart() -> None:
    kept = KeptRecords()
    async with stub_worker(OK) as worker, front_door(worker.url, observers=[kept]) as door:
        for fault in (TooManyRequestsError("full"), ZeroDivisionError("a bug")):
            door.brain.fault = fault
            await ask(door)
        await door.settled()
    ends = [(one.end, one.status, one.refusal) for one in kept.ended_records]
    assert ends == [
        (RequestEnd.REFUSED, 429, ErrorKind.OVERLOADED),
        (RequestEnd.FAILED, 500, ErrorKind.INTERNAL),
    ]


@pytest.mark.parametrize("sends_head", [True, False])
async def test_a_client_that_leaves(sends_head: bool) -> None:
    kept = KeptRecords()

    async def script(peer: Peer) -> None:
        if sends_head:
            await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await peer.gone()

    async with stub_worker(script) as worker, front_door(worker.url, observers=[kept]) as door:
        async with connect(door.port) as client:
            await client.send("POST", "/v1/chat/completions", body=CHAT)
            await worker.arrived.acquire()
            if sends_head:
                await client.head()
        record = await kept.only()
    assert record.end is RequestEnd.CLIENT_CLOSED
    assert record.status == (200 if sends_head else None)


async def test_a_client_that_leaves_within_its_body() -> None:
    kept = KeptRecords()
    async with stub_worker(OK) as worker, front_door(worker.url, observers=[kept]) as door:
        async with connect(door.port) as client:
            client.writer.write(
                b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n"
            )
            client.writer.write(b"\r\n{")
            await client.writer.drain()
        record = await kept.only()
    assert (record.end, record.status, record.bytes_in) == (RequestEnd.CLIENT_CLOSED, None, 1)


async def test_the_routers_stop_is_told() -> None:
    kept = KeptRecords()
    async with (
        stub_worker(hang) as worker,
        front_door(worker.url, observers=[kept]) as door,
        connect(door.port) as client,
    ):
        await client.send("POST", "/v1/chat/completions", body=CHAT)
        await worker.arrived.acquire()
        for task in list(door.server.tasks):
            task.cancel()
        record = await kept.only()
    assert record.end is RequestEnd.STOPPED


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (200, RequestEnd.ANSWERED),
        (400, RequestEnd.CLIENT_ERROR),
        (503, RequestEnd.BUSY),
        (500, RequestEnd.WORKER_ERROR),
    ],
)
async def test_what_all_workers_are_asked_ends_as_the_best_of_them_says(
    status: int, end: RequestEnd
) -> None:
    kept = KeptRecords()
    async with (
        stub_worker(answering(response(status=status))) as worker,
        front_door(worker.url, observers=[kept]) as door,
    ):
        await ask(door, "POST", "/abort_request")
        record = await kept.only()
    assert (record.end, record.status, record.refusal) == (end, status, None)


@pytest.mark.parametrize(
    ("origin", "end"),
    [("https://a.example", RequestEnd.ANSWERED), ("https://b.example", RequestEnd.REFUSED)],
)
async def test_preflights_are_remembered(origin: str, end: RequestEnd) -> None:
    kept = KeptRecords()
    cors = Cors(origins=("https://a.example",))
    fields = b"Origin: %b\r\nAccess-Control-Request-Method: POST\r\n" % origin.encode()
    async with front_door(cors=cors, observers=[kept]) as door, connect(door.port) as client:
        client.writer.write(b"OPTIONS /v1/models HTTP/1.1\r\nHost: r\r\n%b\r\n" % fields)
        await client.answer()
        record = await kept.only()
    assert record.end is end
    assert record.refusal is (ErrorKind.NOT_ALLOWED if end is RequestEnd.REFUSED else None)


async def test_own_routes_are_remembered_and_probes_are_not() -> None:
    kept = KeptRecords()
    async with front_door(observers=[kept]) as door:
        for method, target in (
            ("GET", "/health"),
            ("GET", "/ready/"),
            ("HEAD", "/health"),
            ("GET", "/v1/models?secret=1"),
            ("GET", "/v1/models/unknown"),
        ):
            await ask(door, method, target, body=None)
    told = [(one.path, one.end, one.status, one.refusal) for one in kept.ended_records]
    assert told == [
        ("/v1/models", RequestEnd.ANSWERED, 200, None),
        ("/v1/models/unknown", RequestEnd.REFUSED, 404, ErrorKind.MODEL_NOT_FOUND),
    ]


async def test_trace_headers_pass_unchanged_where_nothing_traces() -> None:
    sent = [("traceparent", "anything at all"), ("tracestate", "a=1"), ("baggage", "k=v")]
    for observers in ([], [KeptRecords()]):
        async with (
            stub_worker(OK) as worker,
            front_door(worker.url, observers=observers) as door,
        ):
            await ask(door, headers=sent)
        received = worker.requests[0].headers
        assert [one for one in received if one[0] in dict(sent)] == sent


async def test_what_never_becomes_a_request_is_told_once() -> None:
    kept, lengths = KeptRecords(), []
    limits = ConnectionLimits(head_s=0.2, body_s=0.2, keep_alive_s=5)
    async with front_door(observers=[kept], connections=limits) as door:
        for data in (b"GET / HTTP/3\r\n\r\n", b"GET / HT", b"\x16\x03\x01\x02\x00\x01"):
            async with connect(door.port) as client:
                client.writer.write(data)
                async with asyncio.timeout(5):
                    lengths += (await client.head()).values("content-length")
    told = [(one.end, one.status, one.refusal, one.address) for one in kept.ended_records]
    bad = (RequestEnd.REFUSED, 400, ErrorKind.MALFORMED, "127.0.0.1")
    late = (RequestEnd.REFUSED, 408, ErrorKind.REQUEST_TIMEOUT, "127.0.0.1")
    assert sorted(told, key=str) == sorted([bad, late, bad], key=str)
    assert sorted(str(one.bytes_out) for one in kept.ended_records) == sorted(lengths)


async def test_a_body_that_comes_too_slowly_is_told_once() -> None:
    kept = KeptRecords()
    limits = ConnectionLimits(head_s=0.2, body_s=0.2, keep_alive_s=5)
    async with front_door(observers=[kept], connections=limits) as door, connect(door.port) as one:
        one.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n\r\n{")
        async with asyncio.timeout(5):
            answer = await one.head()
        record = await kept.only()
    assert answer.status == 408
    assert (record.end, record.status) == (RequestEnd.REFUSED, 408)
    assert (record.refusal, record.path) == (ErrorKind.REQUEST_TIMEOUT, "/v1/completions")
    assert answer.values("content-length") == [str(record.bytes_out)]


async def test_refusals_tell_their_error_in_both_places() -> None:
    kept = KeptRecords()
    async with front_door(observers=[kept]) as door:
        answer = await ask(door)
        record = await kept.only()
    assert json.loads(answer.body)["error"]["code"] == record.refusal == ErrorKind.NO_WORKER
    assert record.unplanned is not None
    assert record.decision is record.unplanned
    assert record.all_waits() == [], "it did not wait, it was refused"
