"""Server-sent events, parsed from bytes as they come. Pure: bytes in, data fields out.

Lines end with LF, CRLF or CR+LF across chunks; an empty line ends an event; several ``data`` lines of one event
are joined by LF; comments and other fields are ignored.
"""

MAX_EVENT_BYTES = 8 << 20


class OversizedEventError(ValueError):
    """An event is longer than ``MAX_EVENT_BYTES``."""


class SseParser:
    """Parser of one stream. Holds at most one unfinished event."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that the chunk completes, in order. O(chunk + rest).

        Raises:
            OversizedEventError: an unfinished event grows beyond the bound.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            self._take(line.removesuffix(b"\r"), events)
        if len(self._rest) + self._data_bytes > self._max_event_bytes:
            raise OversizedEventError(f"an event is longer than {self._max_event_bytes} bytes")
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            self._data.append(value)
            self._data_bytes += len(value)
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data, self._data_bytes = [], 0
