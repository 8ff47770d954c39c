"""W3C trace context: what is taken of a client's word, and what a worker is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace.span import TraceState

from router.headers import RawHeader
from router.trace_context import (
    Trace,
    TraceContext,
    TraceParent,
    hex_trace_id,
    is_sound,
    new_span_id,
    new_trace_id,
    read_context,
    read_traceparent,
    with_trace,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01".encode()
PARENT = TraceParent(int(TRACE, 16), int(SPAN, 16), is_sampled=True)


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (GOOD, PARENT),
        (b" " + GOOD + b"\t", PARENT),
        (GOOD[:-2] + b"00", PARENT._replace(is_sampled=False)),
        (GOOD[:-2] + b"03", PARENT),
        (GOOD[:-2] + b"02", PARENT._replace(is_sampled=False)),
        (b"cc" + GOOD[2:], PARENT),
        (b"cc" + GOOD[2:] + b"-what-is-to-come", PARENT),
        (GOOD + b"-more", None),
        (b"cc" + GOOD[2:] + b"more", None),
        (b"ff" + GOOD[2:], None),
        (GOOD.upper(), None),
        (GOOD[:-1], None),
        (GOOD + b"0", None),
        (f"00-{'0' * 32}-{SPAN}-01".encode(), None),
        (f"00-{TRACE}-{'0' * 16}-01".encode(), None),
        (GOOD.replace(b"-", b"_"), None),
        (GOOD.replace(b"4", b"\xb2"), None),
        (b"", None),
        (b"0" * 100_000, None),
    ],
)
def test_what_a_traceparent_means(value: bytes, meaning: TraceParent | None) -> None:
    assert read_traceparent(value) == meaning


@given(st.binary(max_size=80))
def test_any_bytes_are_a_context_or_none(value: bytes) -> None:
    found = read_traceparent(value)
    if found is not None:
        assert found.trace_id > 0
        assert found.span_id > 0


@given(
    st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans(), st.integers(1, 2**64 - 1)
)
def test_what_is_told_can_be_read_again(
    trace_id: int, span_id: int, is_sampled: bool, own: int
) -> None:
    context = TraceContext(TraceParent(trace_id, span_id, is_sampled), b"a=1")
    fields = Trace(trace_id, own, is_sampled, context).fields(own)
    told = TraceParent(trace_id, own if is_sampled else span_id, is_sampled)
    assert read_context(fields) == TraceContext(told, b"a=1")
    assert len(hex_trace_id(trace_id)) == 32


STATE: RawHeader = (b"tracestate", b"rojo=00f067aa0ba902b7")


@pytest.mark.parametrize(
    ("headers", "context"),
    [
        ([(b"traceparent", GOOD), STATE], TraceContext(PARENT, STATE[1])),
        (
            [STATE, (b"traceparent", GOOD), (b"tracestate", b"b=2")],
            TraceContext(PARENT, STATE[1] + b",b=2"),
        ),
        ([(b"traceparent", GOOD)], TraceContext(PARENT)),
        ([STATE], TraceContext()),
        ([(b"traceparent", b"nonsense"), STATE], TraceContext()),
        ([(b"traceparent", GOOD), (b"traceparent", GOOD), STATE], TraceContext()),
        ([], TraceContext()),
    ],
)
def test_state_goes_with_one_good_parent_only(
    headers: list[RawHeader], context: TraceContext
) -> None:
    assert read_context(headers) == context


def test_a_trace_that_begins_here_and_is_not_recorded_is_told_so() -> None:
    (field,) = Trace(5, 6, is_sampled=False, context=TraceContext()).fields(7)
    assert field == (b"traceparent", b"00-%032x-%016x-00" % (5, 7))


def test_ours_take_the_place_of_the_clients() -> None:
    kept: list[RawHeader] = [(b"a", b"1"), (b"baggage", b"k=v")]
    own: list[RawHeader] = [(b"traceparent", GOOD)]
    assert with_trace([kept[0], (b"traceparent", b"x"), STATE, kept[1]], own) == [*kept, *own]


def test_ids_are_new_and_fit() -> None:
    assert len({new_trace_id() for _ in range(100)}) == 100
    assert all(0 < new_trace_id() < 2**128 and 0 < new_span_id() < 2**64 for _ in range(100))


@pytest.mark.parametrize(
    ("state", "is_fine"),
    [
        (b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", True),
        (b"a=1 , b=2", True),
        (b"tenant@vendor=x", True),
        (b"", False),
        (b"a", False),
        (b"A=1", False),
        (b"0=1", False),
        (b"0@a=1", True),
        (b"a@b@c=1", False),
        (b"a=1,a=2", False),
        (b"a=1,,b=2", False),
        (b"a=\x1b[2J", False),
        (b"a=\xe9", False),
        (b",".join(b"k%d=v" % number for number in range(33)), False),
        (b"a=" + b"x" * 2000, False),
    ],
)
def test_states_that_spans_can_bear(state: bytes, is_fine: bool) -> None:
    assert is_sound(state) is is_fine


@given(
    st.binary(max_size=60)
    | st.from_regex(rb"[a0*@]{1,4}=[a ]{1,3}(,[a-z0-9@]{1,4}=[a-z=]{1,3}){0,3}", fullmatch=True)
)
def test_what_is_sound_is_so_for_the_library_too(state: bytes) -> None:
    if is_sound(state):
        members = state.count(b",") + 1
        assert len(TraceState.from_header([state.decode("ascii")])) == members
