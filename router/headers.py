"""Header rules of a proxy: what goes on, what stays on its own hop, who names a request.

Header fields that speak of one connection (RFC 9110 §7.6.1) are dropped in both directions, with every
field that ``Connection`` names. Framing is made anew on each hop: a request body is sent with its
length, an answer keeps the worker's length or is chunked, never both. Everything else passes in order,
repeats included.
"""

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple
from urllib.parse import urlsplit

RawHeader = tuple[bytes, bytes]

REQUEST_ID = b"x-request-id"
DP_RANK = b"x-data-parallel-rank"
SESSION_ID = b"x-session-id"
MAX_REQUEST_ID = 128
BODILESS = frozenset({204, 304})  # answers without a body, whatever they declare

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Made anew for the worker: its address, the body's length, the answered expectation.
_REMADE = frozenset({b"host", b"content-length", b"expect", REQUEST_ID})
_NOT_FORWARDED = _HOP_BY_HOP | _REMADE
_READ = frozenset(
    {
        b"content-type",
        b"content-length",
        b"connection",
        REQUEST_ID,
        b"content-encoding",
        b"expect",
        b"via",
        SESSION_ID,
    }
)
_LINE = b": ".join
_NAME_OF = itemgetter(0)
_NO_TOKEN = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# The front door's own: what a worker says there is not passed on, were it another front door.
_OURS = frozenset({REQUEST_ID, b"x-kvroute-worker", b"x-kvroute-dp-rank", b"x-kvroute-score"})
_LOCATIONS = frozenset({b"location", b"content-location"})
_NOT_RELAYED = _HOP_BY_HOP | _OURS
_READ_OF_ANSWER = _LOCATIONS | {
    b"content-type",
    b"content-encoding",
    b"content-length",
    b"connection",
    b"transfer-encoding",
}


class RequestHead(NamedTuple):
    """What the front door reads in a client's header section, and what of it goes on.

    Attributes:
        forwarded: name and value in the client's order, without the hop's own.
        content_length: as declared; None where it is not, or is no number.
        is_encoded: the body is compressed: it passes as it is and is not read here.
        request_id: the client's, if it is fit to be passed on.
        expects_continue: the client waits before it sends the body.
        via: the routers and proxies on its way, all fields in one.
        session: the conversation, where the client names it; any bytes, read as Latin-1.
    """

    forwarded: list[RawHeader]
    content_length: int | None
    is_encoded: bool
    is_json: bool
    request_id: str | None
    expects_continue: bool
    via: bytes = b""
    session: str | None = None


class AnswerHead(NamedTuple):
    """A worker's header section as the client gets it, and what the front door reads in it.

    Attributes:
        relayed: names in lower case, in the worker's order.
        is_event_stream: the body is a stream of server-sent events.
        is_encoded: the body is compressed or otherwise coded.
        has_length: ``relayed`` holds a content length.
        has_location: it points somewhere, perhaps at the worker.
    """

    relayed: list[RawHeader]
    is_event_stream: bool
    is_encoded: bool
    has_length: bool
    has_location: bool = False


def read_request_head(raw: Iterable[RawHeader]) -> RequestHead:
    """One pass over a request's header section; names are lower case, as the server hands them over."""
    forwarded: list[RawHeader] = []
    connection: list[bytes] = []
    vias: list[bytes] = []
    length: int | None = None
    is_encoded = is_json = expects_continue = False
    request_id: str | None = None
    session: str | None = None
    for field in raw:
        name, value = field
        if name not in _NOT_FORWARDED:
            forwarded.append(field)
        if name not in _READ:
            continue
        if name == b"content-type":
            is_json = value.split(b";", 1)[0].strip().lower().endswith(b"json")
        elif name == b"content-length":
            length = int(value) if value.isdigit() else None
        elif name == b"connection":
            connection.append(value)
        elif name == REQUEST_ID:
            request_id = sane_request_id(value)
        elif name == b"content-encoding":
            is_encoded = _is_coding(value)
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
        elif name == b"via":
            vias.append(value)
        else:  # SESSION_ID
            session = value.decode("latin-1") or None
    if connection:
        named = _listed_names(b",".join(connection))
        forwarded = [field for field in forwarded if field[0] not in named]
    via = b",".join(vias)
    return RequestHead(
        forwarded, length, is_encoded, is_json, request_id, expects_continue, via, session
    )


def read_answer_head(raw: Iterable[RawHeader], status: int) -> AnswerHead:
    """One pass over a worker's header section.

    ``x-request-id`` and who served the request are left out: the front door adds its own. A length beside chunked coding, or on an
    answer that has no body, is left out too.
    """
    relayed: list[RawHeader] = []
    dropped: set[bytes] = set()
    is_stream = is_coded = has_length = has_location = False
    has_no_length = status in BODILESS
    for written, value in raw:
        name = written.lower()
        if name not in _NOT_RELAYED:
            relayed.append((name, value))
        if name not in _READ_OF_ANSWER:
            continue
        if name == b"content-type":
            is_stream = _is_event_stream(value)
        elif name == b"content-encoding":
            is_coded = _is_coding(value)
        elif name == b"content-length":
            has_length = True
        elif name == b"connection":
            dropped |= _listed_names(value)
        elif name == b"transfer-encoding":
            has_no_length = True
        else:  # one of _LOCATIONS
            has_location = True
    if has_no_length and has_length:
        dropped.add(b"content-length")
    if dropped:
        relayed = [field for field in relayed if field[0] not in dropped]
    has_length = has_length and b"content-length" not in dropped
    return AnswerHead(relayed, is_stream, is_coded, has_length, has_location)


def without_base(headers: Iterable[RawHeader], url: str) -> list[RawHeader]:
    """The fields, where those that point at the worker point at the same path here.

    Args:
        url: the worker's base. What points elsewhere stays as it is.
    """
    return [
        (name, _path_here(value, url)) if name in _LOCATIONS else (name, value)
        for name, value in headers
    ]


def _path_here(location: bytes, url: str) -> bytes:
    parts = urlsplit(url)
    origin, base = f"{parts.scheme}://{parts.netloc}".encode(), parts.path.encode()
    rest = location[len(origin) :]
    if location[: len(origin)].lower() != origin.lower() or rest[:1] not in (b"", b"/", b"?", b"#"):
        return location
    if base and rest.startswith(base) and rest[len(base) :][:1] in (b"", b"/", b"?", b"#"):
        rest = rest[len(base) :]
    return b"/" + rest.lstrip(b"/")  # two slashes would name a host


def is_sendable(raw: Sequence[RawHeader]) -> bool:
    """May these fields stand in an answer? Names are tokens, values have no control characters but tabs.

    Source: RFC 9110 §5.1, §5.5; uvicorn refuses other names and values within an answer.
    """
    names, all_bytes = b"".join(names_of(raw)), b"".join(map(b"".join, raw))
    return _NO_TOKEN.search(names) is None and _CONTROL.search(all_bytes) is None


def section(fields: Sequence[RawHeader]) -> bytes:
    """The fields as they go over the wire, each on its line; nothing for none.

    Raises:
        ValueError: a name or a value has a line break.
    """
    if not fields:
        return b""
    lines = b"\r\n".join(map(_LINE, fields)) + b"\r\n"
    if lines.count(b"\n") != len(fields) or lines.count(b"\r") != len(fields):
        raise ValueError("a header field has a line break")
    return lines


def names_of(fields: Iterable[RawHeader]) -> list[bytes]:
    """The fields' names, in order."""
    return list(map(_NAME_OF, fields))


def num_bytes(raw: Iterable[RawHeader]) -> int:
    """Of the section on the wire."""
    return sum(len(name) + len(value) + 4 for name, value in raw)


def header(headers: Iterable[RawHeader], name: bytes) -> bytes | None:
    """The first value of a field; names in lower case."""
    for found, value in headers:
        if found == name:
            return value
    return None


def is_event_stream(headers: Iterable[RawHeader]) -> bool:
    """Is the body a stream of server-sent events?"""
    return _is_event_stream(header(headers, b"content-type") or b"")


def is_encoded(headers: Iterable[RawHeader]) -> bool:
    """Is the body compressed or otherwise coded?"""
    return _is_coding(header(headers, b"content-encoding") or b"")


def _is_event_stream(content_type: bytes) -> bool:
    return content_type.lstrip().lower().startswith(b"text/event-stream")


def _is_coding(content_encoding: bytes) -> bool:
    return content_encoding.strip().lower() not in (b"", b"identity")


def _listed_names(value: bytes) -> frozenset[bytes]:
    return frozenset(name for part in value.split(b",") if (name := part.strip().lower()))


def sane_request_id(value: bytes) -> str | None:
    """A client's request id is kept if it is short and of visible ASCII; None for another."""
    if not 0 < len(value) <= MAX_REQUEST_ID or not all(0x21 <= byte <= 0x7E for byte in value):
        return None
    return value.decode("ascii")
