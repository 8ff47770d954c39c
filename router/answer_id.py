"""The id that an answer gives to what was made, read at its beginning while it is relayed.

    {"id": "resp_1", "object": "response", …                                  a whole answer
    "session_1"                                                               an answer that is nothing else
    event: response.created\\ndata: {"response": {"id": "resp_1", …}, …}       a stream

A bounded copy of the beginning is looked through as it comes, until the id has been seen; what follows is not
looked at. The copy holds at most ``START_BYTES``: an id that comes later is not seen.
"""

import re
from collections.abc import Callable

from protocol import WorkerId
from router.made_ids import MAX_ID_BYTES, Lost, MadeIds
from router.tail import Tail

START_BYTES = 4096
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*(?::|\Z))?|[{}\[\],]|"', re.DOTALL)
_DATA = re.compile(rb"(?:\A|\n)data:")
_ID = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_ID_BYTES)


class AnswerStart:
    """Looks for the id. O(bytes until it is seen), where strings come in few pieces.

    Attributes:
        found: the id, once it has been seen.
        is_over: nothing more will be looked at.
    """

    __slots__ = ("_at", "_is_inside", "_is_stream", "_kept", "_key", "_path", "found", "is_over")

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._is_inside = not is_stream  # of a JSON value, or before it
        self._kept = b""
        self._at = 0  # what is before has been looked at
        self._path: list[bytes | None] = []  # keys that the open containers stand under
        self._key: bytes | None = None  # whose value comes next
        self.found: str | None = None
        self.is_over = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        room = START_BYTES - len(self._kept)
        self._kept += chunk[:room]
        while not self.is_over and self._enter() and self._walk():
            pass
        if len(chunk) >= room or self.is_over:
            self.is_over = True
            self._kept = b""

    def _enter(self) -> bool:
        """Go to where a JSON value begins; False where none has begun yet."""
        if not self._is_inside:
            found = _DATA.search(self._kept, self._at)
            if found is not None:
                self._at = found.end()
                self._is_inside = True
        return self._is_inside

    def _walk(self) -> bool:
        """Go on through the JSON value; True where it has ended and another one may follow."""
        for token in _TOKEN.finditer(self._kept, self._at):
            text, mark = token[1], token[0]
            if mark == b'"':
                return False  # a string that is not whole yet
            if text is None:
                self._step(mark)
            elif not self._path or (self._key == b"id" and self._is_at_top()):
                self._take(text)
            elif token[2] is None:
                self._key = None
            elif token[2].endswith(b":"):
                self._key = text
            else:
                return False  # perhaps a key whose colon is still to come
            self._at = token.end()
            if self.is_over:
                return False
            if not self._path:
                self._is_inside = False
                self.is_over = not self._is_stream
                return self._is_stream
        return False

    def _step(self, mark: bytes) -> None:
        """Into a container, out of one, or on to its next entry."""
        if mark in b"{[":
            self._path.append(self._key)
        elif mark != b"," and self._path:
            self._path.pop()
        self._key = None

    def _is_at_top(self) -> bool:
        """In the body's own object, or in the response that an event tells of?"""
        return len(self._path) == 1 or (len(self._path) == 2 and self._path[1] == b"response")

    def _take(self, text: bytes) -> None:
        if _ID.fullmatch(text) and b"\\" not in text:
            self.found = text.decode("ascii")
        self.is_over = True


class NamingTail(Tail):
    """A tail of an answer whose beginning is looked at, too: tells the table what was made, and by whom."""

    __slots__ = ("_clock", "_made", "_start", "_worker")

    def __init__(
        self, made: MadeIds, worker: WorkerId, clock: Callable[[], float], *, is_stream: bool
    ) -> None:
        super().__init__()
        self._made = made
        self._worker = worker
        self._clock = clock
        self._start: AnswerStart | None = AnswerStart(is_stream=is_stream)

    def append(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        super().append(chunk)
        start = self._start
        if start is None:
            return
        start.feed(chunk)
        if start.is_over:
            self._start = None
            if start.found is None:
                self._made.lost[Lost.UNREADABLE] += 1
            else:
                self._made.note(start.found, self._worker, self._clock())
