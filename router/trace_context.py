"""W3C trace context: which trace a request belongs to, and what the worker is told of it.

    client ──traceparent──▶ request span ──▶ forward span ──traceparent──▶ worker
           ──tracestate ───────────────────────────────────tracestate────▶

A ``traceparent`` that is malformed, or comes more than once, counts as none, and ``tracestate`` without it is
not passed on.

Source: W3C Trace Context, Level 1, §3.2, §3.3.1.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from router.headers import RawHeader

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"

_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_KEY = rb"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_VALUE = rb"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(_KEY + b"=" + _VALUE)
_MAX_MEMBERS = 32
_MAX_STATE_BYTES = 1024
_SAMPLED = 0x01
_OWN_FIELDS = frozenset({TRACEPARENT, TRACESTATE})


class TraceParent(NamedTuple):
    """What a client says: its trace, its span, and whether that is recorded."""

    trace_id: int
    span_id: int
    is_sampled: bool


class TraceContext(NamedTuple):
    """What the client says, and its state of other systems, which passes as it is."""

    parent: TraceParent | None = None
    state: bytes = b""


class Trace(NamedTuple):
    """The trace of one request.

    Attributes:
        span_id: of the span of the request here.
        is_sampled: its spans are recorded.
    """

    trace_id: int
    span_id: int
    is_sampled: bool
    context: TraceContext

    def fields(self, span_id: int) -> list[RawHeader]:
        """Header fields for a worker whose parent is the span. Where nothing is recorded here, the client's span
        is the nearest that may be."""
        parent = self.context.parent
        if not self.is_sampled and parent is not None:
            span_id = parent.span_id
        fields = [(TRACEPARENT, _traceparent(self.trace_id, span_id, is_sampled=self.is_sampled))]
        if self.context.state:
            fields.append((TRACESTATE, self.context.state))
        return fields


def read_context(headers: Iterable[RawHeader]) -> TraceContext:
    """The client's context; names are lower case."""
    given = [field for field in headers if field[0] in _OWN_FIELDS]
    parents = [value for name, value in given if name == TRACEPARENT]
    parent = read_traceparent(parents[0]) if len(parents) == 1 else None
    if parent is None:
        return TraceContext()
    return TraceContext(parent, b",".join([value for name, value in given if name == TRACESTATE]))


def read_traceparent(value: bytes) -> TraceParent | None:
    """The field's meaning; None where it is malformed. Later versions may say more than is read here."""
    form = _FORM.fullmatch(value.strip(b" \t"))
    if form is None:
        return None
    version, trace_id, span_id, flags, more = form.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    parent = TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None


def is_sound(state: bytes) -> bool:
    """Can spans bear it? Of known form, without a key that comes twice, and not long; it passes on in any case."""
    if len(state) > _MAX_STATE_BYTES:
        return False
    members = [member.strip(b" \t") for member in state.split(b",")]
    keys = {member.partition(b"=")[0] for member in members}
    is_formed = all(_MEMBER.fullmatch(member) is not None for member in members)
    return is_formed and len(keys) == len(members) <= _MAX_MEMBERS


def with_trace(headers: Sequence[RawHeader], own: Sequence[RawHeader]) -> list[RawHeader]:
    """The fields with ours in place of the client's."""
    return [*(field for field in headers if field[0] not in _OWN_FIELDS), *own]


def hex_trace_id(trace_id: int) -> str:
    """As it is written everywhere."""
    return f"{trace_id:032x}"


def new_trace_id() -> int:
    """Of a request that belongs to no trace yet."""
    return int.from_bytes(os.urandom(16)) or 1


def new_span_id() -> int:
    """Of one more span."""
    return int.from_bytes(os.urandom(8)) or 1


def _traceparent(trace_id: int, span_id: int, *, is_sampled: bool) -> bytes:
    return b"00-%032x-%016x-%02x" % (trace_id, span_id, _SAMPLED if is_sampled else 0)
