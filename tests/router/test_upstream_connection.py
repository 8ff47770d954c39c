"""Bytes in, an answer or a named fault out, however they are cut; and what becomes of the connection."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.large_body import WRITE_BYTES
from router.upstream import Fault, UpstreamError
from router.upstream_answer import HIGH_WATER_BYTES
from router.upstream_connection import STALE_S
from tests.router.upstream_cases import BAD, CHUNKED, GOOD, HEAD, OK, Good
from tests.router.upstream_line import Line, Seen, seen

EACH_GOOD = pytest.mark.parametrize("good", GOOD.values(), ids=GOOD.keys())
EACH_BAD = pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())


def cuts(raw: bytes) -> Iterator[list[bytes]]:
    """The bytes at once, one by one, and cut in two at every place."""
    yield [raw]
    yield [raw[at : at + 1] for at in range(len(raw))]
    for at in range(1, len(raw)):
        yield [raw[:at], raw[at:]]


@EACH_GOOD
async def test_an_answer_is_the_same_however_it_is_cut(good: Good) -> None:
    for pieces in cuts(good.raw):
        line = Line()
        answer = line.ask(good.method)
        line.feed(pieces)
        if good.ends_by_close:
            assert not answer.is_ended
            line.close()
        found = seen(answer, line)
        assert (found.status, found.body, found.fault) == (good.status, good.body, None)
        assert answer.is_complete
        assert (found.is_kept, line.num_released) == (good.is_kept, int(good.is_kept))
        assert good.is_kept is not line.transport.is_aborted


@EACH_GOOD
async def test_an_answer_that_is_cut_off_is_never_whole(good: Good) -> None:
    head_bytes = good.raw.index(b"\r\n\r\n") + 4
    for length in range(len(good.raw)):
        for reset in (None, ConnectionResetError("reset")):
            line = Line()
            answer = line.ask(good.method)
            line.feed([good.raw[:length]])
            line.close(reset)
            found = seen(answer, line)
            if good.ends_by_close and length >= head_bytes and reset is None:
                assert found.fault is None
            else:
                assert found.fault is Fault.RESET
                assert not answer.is_ended
            assert not found.is_kept
            assert good.body.startswith(found.body)
            assert not found.is_stale


@EACH_BAD
async def test_what_is_no_answer_is_refused_and_the_connection_closed(raw: bytes) -> None:
    step = 1 if len(raw) < 1000 else 1000
    for pieces in ([raw], [raw[at : at + step] for at in range(0, len(raw), step)]):
        line = Line()
        answer = line.ask()
        line.feed(pieces)
        line.close()
        found = seen(answer, line)
        assert found.fault is Fault.MALFORMED
        assert not answer.is_ended
        assert (found.is_kept, line.num_released, line.num_lost) == (False, 0, 1)


@pytest.mark.parametrize(
    "more", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"\x00", b"0\r\n\r\n"]
)
@EACH_GOOD
async def test_a_byte_too_many_closes_the_connection_and_harms_no_answer(
    good: Good, more: bytes
) -> None:
    if good.ends_by_close:
        return
    for pieces in ([good.raw + more], [good.raw, more]):
        line = Line()
        answer = line.ask(good.method)
        line.feed(pieces)
        found = seen(answer, line)
        assert (found.status, found.body, found.fault) == (good.status, good.body, None)
        assert not found.is_kept
        assert line.transport.is_aborted


@given(
    st.lists(st.sampled_from([one for one in GOOD.values() if one.is_kept]), max_size=6), st.data()
)
def test_answers_on_one_connection_do_not_mix(goods: list[Good], data: st.DataObject) -> None:
    async def converse() -> None:
        line = Line()
        for number, good in enumerate(goods):
            answer = line.ask(good.method)
            places = st.lists(st.integers(0, len(good.raw)), max_size=5)
            ends = [0, *sorted(data.draw(places)), len(good.raw)]
            line.feed(good.raw[a:b] for a, b in pairwise(ends))
            found = seen(answer, line)
            assert (found.status, found.body, found.is_kept) == (good.status, good.body, True)
            assert line.num_released == number + 1

    asyncio.run(converse())


@given(st.binary(max_size=300), st.sampled_from([b"", HEAD, CHUNKED, OK, OK[:-2]]), st.booleans())
def test_whatever_comes_the_answer_ends_or_fails(
    garbage: bytes, start: bytes, is_head: bool
) -> None:
    async def converse() -> Seen:
        line = Line()
        answer = line.ask("HEAD" if is_head else "GET")
        line.feed([start, garbage])
        if not line.connection.is_usable:
            line.close()
        assert answer.is_ended or not line.connection.is_usable
        return seen(answer, line)

    found = asyncio.run(converse())
    assert (found.fault is None) is (found.status >= 200 and not found.is_stale) or found.fault


async def test_fields_are_kept_as_they_came() -> None:
    line = Line()
    answer = line.ask()
    raw = b"X-b: 1\r\nSET-cookie: a=1\r\nx-B:  \xff\xe9 2\r\nset-Cookie: b=2\r\nContent-Length: 0\r\n\r\n"
    line.feed([HEAD + raw])
    assert answer.headers == [
        (b"X-b", b"1"),
        (b"SET-cookie", b"a=1"),
        (b"x-B", b"\xff\xe9 2"),
        (b"set-Cookie", b"b=2"),
        (b"Content-Length", b"0"),
    ]


async def test_pieces_that_wait_are_taken_at_once_and_none_is_split() -> None:
    line = Line()
    answer = line.ask()
    line.feed([CHUNKED, b"1\r\na\r\n", b"2\r\nbc\r\n1\r\nd\r\n"])
    assert answer.take_now() == b"abcd"
    assert answer.take_now() == b""
    line.feed([b"200\r\n" + b"x" * 512 + b"\r\n"])
    assert answer.take_now() == b"x" * 512
    assert not answer.is_ended


async def test_one_wake_up_brings_head_and_body() -> None:
    line = Line()
    answer = line.ask()
    begun = asyncio.ensure_future(answer.begun())
    await asyncio.sleep(0)
    line.feed([OK])
    await begun
    assert answer.is_ended
    assert not answer.is_complete
    assert answer.take_now() == b"hello"
    assert answer.is_complete


async def test_a_reader_that_is_late_stops_the_worker() -> None:
    line = Line()
    answer = line.ask()
    line.feed([HEAD + b"Content-Length: 1000000\r\n\r\n", b"x" * HIGH_WATER_BYTES])
    line.transport.expect_reading(is_reading=False)
    assert len(answer.take_now()) == HIGH_WATER_BYTES
    line.transport.expect_reading(is_reading=True)


async def test_many_small_pieces_weigh_more_than_their_bytes() -> None:
    line = Line()
    line.ask()
    line.feed([CHUNKED])
    num_pieces = 0
    while line.transport.is_reading_now:
        line.feed([b"1\r\na\r\n"])
        num_pieces += 1
    assert num_pieces < HIGH_WATER_BYTES / 50


async def test_an_answer_that_was_not_read_leaves_its_connection_reading() -> None:
    line = Line()
    answer = line.ask()
    body = b"x" * HIGH_WATER_BYTES
    line.feed([HEAD + b"Content-Length: %d\r\n\r\n" % (len(body) + 1), body])
    line.transport.expect_reading(is_reading=False)
    line.feed([b"y"])
    line.transport.expect_reading(is_reading=True)
    assert line.connection.is_usable
    assert answer.take_now() == body + b"y"


@pytest.mark.parametrize("num_bytes", [0, 1, 16 * 1024, 16 * 1024 + 1, WRITE_BYTES])
async def test_a_request_is_one_write(num_bytes: int) -> None:
    line = Line()
    line.ask("POST", b"x" * num_bytes)
    (written,) = line.transport.writes
    assert written == b"POST / HTTP/1.1\r\n\r\n" + b"x" * num_bytes


async def test_a_large_body_goes_as_fast_as_the_worker_reads() -> None:
    body = bytes(range(256)) * 4096
    line = Line(room=1000)
    line.ask("POST", body)
    rounds = 0
    while sum(map(len, line.transport.writes)) < len(body):
        before = len(line.transport.writes)
        line.transport.make_room(1)
        assert len(line.transport.writes) == before + 1
        rounds += 1
    assert rounds == len(body) // WRITE_BYTES - 1
    assert b"".join(line.transport.writes).endswith(b"\r\n\r\n" + body)


async def test_over_tls_a_large_body_leaves_room_to_read_what_the_worker_says() -> None:
    """A piece, then whatever a read of the socket brings, then the next piece; none after an answer."""
    line = Line(is_tls=True)
    answer = line.ask("POST", bytes(8 * WRITE_BYTES))
    for num_pieces in range(1, 5):
        assert len(line.transport.writes) == num_pieces
        await asyncio.sleep(0)  # within which the loop looks at its sockets
        assert len(line.transport.writes) == num_pieces
        await asyncio.sleep(0)
    line.feed([b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\nno"])
    assert (answer.status, answer.take_now()) == (413, b"no")
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(line.transport.writes) == 5
    assert line.transport.is_aborted


@pytest.mark.parametrize("num_bytes", [2000, 1 << 20])
async def test_an_answer_before_the_request_was_read_is_whole_and_the_last(num_bytes: int) -> None:
    line = Line(room=1000)
    answer = line.ask("POST", b"x" * num_bytes)
    line.feed([b"HTTP/1.1 413 X\r\nContent-Length: 2\r\n\r\nno"])
    found = seen(answer, line)
    assert (found.status, found.body, found.fault) == (413, b"no", None)
    assert not found.is_kept
    assert line.transport.is_aborted
    line.connection.resume_writing()


async def test_an_answer_that_begins_before_the_request_was_read_goes_on() -> None:
    line = Line(room=1000)
    answer = line.ask("POST", b"x" * (1 << 20))
    line.feed([CHUNKED + b"1\r\na\r\n"])
    assert answer.take_now() == b"a"
    while line.transport.num_unsent:
        line.transport.make_room(WRITE_BYTES)
    line.feed([b"0\r\n\r\n"])
    assert answer.is_complete
    assert line.connection.is_usable


async def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    line = Line()
    line.feed([b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
    assert line.transport.is_aborted


@pytest.mark.parametrize(
    ("num_before", "part", "is_stale"),
    [
        (0, b"", False),
        (1, b"", True),
        (1, b"H", False),
        (1, HEAD + b"\r\n"[:0], False),
        (2, b"", True),
    ],
)
@pytest.mark.parametrize("reset", [None, ConnectionResetError("reset")])
async def test_a_reused_connection_that_brings_nothing_may_have_been_closed_before(
    num_before: int, part: bytes, is_stale: bool, reset: Exception | None
) -> None:
    line = Line()
    for _ in range(num_before):
        line.ask()
        line.feed([OK])
    answer = line.ask()
    line.feed([part])
    line.close(reset)
    with pytest.raises(UpstreamError) as error:
        await answer.begun()
    assert (error.value.fault, error.value.is_stale) == (Fault.RESET, is_stale)


@pytest.mark.parametrize(("after_s", "is_stale"), [(STALE_S - 0.1, True), (STALE_S + 0.1, False)])
async def test_a_connection_that_breaks_within_the_work_was_not_closed_before(
    after_s: float, is_stale: bool
) -> None:
    line = Line()
    line.ask()
    line.feed([OK])
    line.clock.ahead_s = 100.0
    answer = line.ask()
    line.clock.ahead_s += after_s
    line.close(ConnectionResetError("reset"))
    with pytest.raises(UpstreamError) as error:
        await answer.begun()
    assert error.value.is_stale is is_stale


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("num_before", [0, 1])
async def test_a_connection_that_was_closed_before_the_request(
    num_before: int, is_lost: bool
) -> None:
    """A worker may close a connection before the one who asked for it gets to use it."""
    line = Line()
    for _ in range(num_before):
        line.ask()
        line.feed([OK])
    num_writes = len(line.transport.writes)
    line.connection.eof_received()
    line.transport.abort()
    if is_lost:
        line.connection.connection_lost(None)
    with pytest.raises(UpstreamError) as error:
        await line.ask().begun()
    assert (error.value.fault, error.value.is_stale) == (Fault.RESET, num_before > 0)
    assert len(line.transport.writes) == num_writes


async def test_closing_early_closes_the_connection_and_later_does_not() -> None:
    line = Line()
    whole = line.ask()
    line.feed([OK])
    whole.close()
    assert line.connection.is_usable
    broken = line.ask()
    whole.close()
    line.feed([OK[:-1]])
    broken.close()
    broken.close()
    assert line.transport.is_aborted
    with pytest.raises(UpstreamError):
        await broken.read()


async def test_silence_counts_while_somebody_waits() -> None:
    line = Line()
    loop = asyncio.get_running_loop()
    answer = line.ask()
    line.connection.expire()
    assert not line.transport.is_aborted
    begun = asyncio.ensure_future(answer.begun())
    await asyncio.sleep(0)
    assert 590 < line.connection.due - loop.time() <= 600
    line.feed([CHUNKED])
    await begun
    line.connection.expire()
    assert not line.transport.is_aborted
    line.feed([b"1\r\na\r\n"])
    assert await answer.read() == b"a"
    reading = asyncio.ensure_future(answer.read())
    await asyncio.sleep(0)
    assert 290 < line.connection.due - loop.time() <= 300
    line.connection.expire()
    with pytest.raises(UpstreamError) as error:
        await reading
    assert error.value.fault is Fault.TIMEOUT
    assert line.transport.is_aborted
