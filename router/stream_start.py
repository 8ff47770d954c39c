"""The first events of a stream: has the engine begun to answer, or is it only being polite?

Only content proves that a prompt has been computed. A comment that keeps the connection alive, a ping, the
announcement of a response, ``[DONE]``, and an error prove nothing. Bytes are looked at until the first
content or error has come, then never again; memory is bounded by one line's first bytes.
"""

from enum import Enum

from router.tail import has_error_event

_ENOUGH_BYTES = 64  # of an unfinished line to tell an error from content
_SILENT_NAMES = frozenset(
    {b"ping", b"response.created", b"response.in_progress", b"response.queued"}
)
_SILENT_DATA = (b"[DONE]", b'{"type":"ping"', b'{"type": "ping"')


class Verdict(Enum):
    """What the first telling line of a stream was."""

    NOTHING_YET = "nothing yet"
    CONTENT = "content"
    ERROR = "error"


class StreamStart:
    """Looks at a stream of server-sent events from its start. O(bytes before the verdict)."""

    __slots__ = ("_is_silent", "_line", "verdict")

    def __init__(self) -> None:
        self._line = b""  # the unfinished one, cut to its first bytes
        self._is_silent = False  # the event that has begun has a name without content
        self.verdict = Verdict.NOTHING_YET

    def feed(self, chunk: bytes) -> Verdict:
        """Take the next bytes; the verdict so far."""
        if self.verdict is Verdict.NOTHING_YET:
            self.verdict = self._look(self._line + chunk)
        return self.verdict

    def _look(self, text: bytes) -> Verdict:
        *lines, rest = text.split(b"\n")
        for line in lines:
            verdict = self._judge(line.rstrip(b"\r"))
            if verdict is not Verdict.NOTHING_YET:
                return verdict
        self._line = rest[:_ENOUGH_BYTES]
        is_enough = len(rest) >= _ENOUGH_BYTES and rest.startswith(b"data:")
        return self._judge(rest) if is_enough else Verdict.NOTHING_YET

    def _judge(self, line: bytes) -> Verdict:
        """One line, whole or long enough."""
        if has_error_event(line[:_ENOUGH_BYTES]):
            return Verdict.ERROR
        if not line:
            self._is_silent = False
        elif line.startswith(b"event:"):
            self._is_silent = line[6:].strip() in _SILENT_NAMES
        elif line.startswith(b"data:") and not self._is_silent:
            data = line[5:].strip()
            if data and not data.startswith(_SILENT_DATA):
                return Verdict.CONTENT
        return Verdict.NOTHING_YET
