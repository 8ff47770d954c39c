"""A head that comes again: on a kept connection clients mostly send the same one, but for its body's length.

    POST /v1/chat/completions HTTP/1.1⏎ … ⏎content-length: │2113│⏎ … ⏎⏎ body
    └───────────────────────── before ─────────────────────┘    └ after ┘

Whatever was read of a head, and found in order, holds for each that has the same bytes around the number. So such
a request is not parsed: it is told by two comparisons, where one read has brought it, all of it and nothing more.
A head is remembered if nothing in it but that number frames what follows.
"""

import re
from collections.abc import Sequence

from starlette.types import Scope

from router.headers import RawHeader, RequestHead, read_request_head

KEPT_BYTES = 4096
"""A longer head is not remembered."""
MAX_UNLIKE = 4
_END = b"\r\n\r\n"
_MAX_DIGITS = 9
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([1-9][0-9]{0,8})\r\n", re.IGNORECASE)
_CONTENT_LENGTH = b"content-length"


class RepeatedHead:
    """One head of a connection.

    Args:
        head: every byte of it, up to the end of the blank line.
        number: where in it the length stands.
        scope: of the request that it began, as applications were given it.
    """

    __slots__ = ("_after", "_before", "_fields", "_length_at", "_read", "_scope")

    def __init__(self, head: bytes, number: tuple[int, int], scope: Scope) -> None:
        begin, end = number
        self._before, self._after = head[:begin], head[end:]
        self._scope = dict(scope)
        self._fields: Sequence[RawHeader] = tuple(scope["headers"])
        self._length_at = [name for name, _ in self._fields].index(_CONTENT_LENGTH)
        self._read: RequestHead | None = None

    def body_of(self, data: bytes) -> bytes | None:
        """The body of a request with such a head, where ``data`` is that request; else None. O(head)."""
        if not data.startswith(self._before):
            return None
        begin = len(self._before)
        end = data.find(b"\r", begin, begin + _MAX_DIGITS + 1)
        digits = data[begin:end]
        if not digits.isdigit() or digits[:1] == b"0" or not data.startswith(self._after, end):
            return None
        body_at = end + len(self._after)
        return data[body_at:] if len(data) - body_at == int(digits) else None

    def scope_of(self, body: bytes, state: dict[str, object]) -> Scope:
        """The scope of the request that has this body."""
        fields = list(self._fields)
        fields[self._length_at] = (_CONTENT_LENGTH, b"%d" % len(body))
        return {**self._scope, "headers": fields, "state": state}

    def head_of(self, body: bytes) -> RequestHead:
        """What the front door reads in its head."""
        if self._read is None:
            self._read = read_request_head(self._fields)
        read, length = self._read, len(body)
        return read if read.content_length == length else read._replace(content_length=length)


class HeadMemory:
    """The last head of one connection. Where ``MAX_UNLIKE`` in a row were none that came again, it is not looked for
    any more."""

    __slots__ = ("_known", "_num_unlike")

    def __init__(self) -> None:
        self._known: RepeatedHead | None = None
        self._num_unlike = 0

    def find(self, data: bytes) -> tuple[RepeatedHead, bytes] | None:
        """The head and the body of a whole request, if its head is the one that is known."""
        known = self._known
        body = None if known is None else known.body_of(data)
        if known is None or body is None:
            return None
        self._num_unlike = 0
        return known, body

    def remember(self, data: bytes, scope: Scope) -> None:
        """What was read held one whole request, and this is its scope."""
        if self._num_unlike < MAX_UNLIKE:
            self._num_unlike += 1
            self._known = _remembered(data, scope)


def _remembered(data: bytes, scope: Scope) -> RepeatedHead | None:
    """The head of a request that has come whole, in one read; None where it is not fit to be remembered.

    Args:
        data: what was read.
        scope: of the request that the parser found in it, HTTP/1.1 and with nothing behind its body.
    """
    head_bytes = data.find(_END) + len(_END)
    if not len(_END) <= head_bytes <= KEPT_BYTES or not data[:1].isalpha():
        return None
    head, fields = data[:head_bytes], scope["headers"]
    numbers = list(_LENGTH.finditer(head))
    lengths = [value for name, value in fields if name == _CONTENT_LENGTH]
    if len(numbers) != 1 or lengths != [numbers[0][1]]:
        return None
    if int(lengths[0]) != len(data) - head_bytes:
        return None
    has_fields_by_line = head.count(b"\n") == head.count(b"\r\n") == len(fields) + 2
    return RepeatedHead(head, numbers[0].span(1), scope) if has_fields_by_line else None
