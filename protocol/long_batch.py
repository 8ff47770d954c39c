"""Long payloads, read in steps: first what the batch says as a whole, then its events one by one.

A payload of 10^5 events takes a second to decode and ten times its size in memory. So it is scanned once, a
few events at a time, for what a stream must know before the first event is applied (rank, clock, clears, and
whether everything can be read), and its events are decoded again as they are taken. In between only the bytes
are kept. One event is read in one go; one of more than 8 MiB, five times a store of 10^6 tokens, is skipped.

But for that the answer is that of ``decode_batch`` for the same bytes.
"""

from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import overload

import msgpack

from protocol.codec import (
    BATCH_NAMES,
    BATCH_PLACES,
    UndecodablePayloadError,
    batch_rank,
    batch_time,
    read_event,
)
from protocol.events import AllBlocksCleared, EventBatch, KvEvent, SkippedEvents, SkipReason

MAX_EVENT_BYTES = 8 << 20
"""Of an event, or of any other value in a batch, that is read in one go."""

_READ_BYTES = 64 << 10
_STEP_BYTES = 128 << 10
_MAX_PASSED = (
    64  # unreadable events in a row that a walk reads again, to find the next readable one
)
_ARRAYS = frozenset(bytes([kind]) for kind in (*range(0x90, 0xA0), 0xDC, 0xDD))
_MAPS = frozenset(bytes([kind]) for kind in (*range(0x80, 0x90), 0xDE, 0xDF))
_FAULTS = (ValueError, TypeError, OverflowError, msgpack.UnpackException)


class LongEvents(Sequence[KvEvent]):
    """The readable events of a scanned payload; each walk along them decodes them anew.

    Many in a row that cannot be read are left out of the walk, for the next readable one must not be far.

        readable runs    [start, number of raw events] [start, number] …

    Attributes:
        num_clears: clears of every tier among them.
    """

    __slots__ = ("_num_raw", "_num_read", "_payload", "_starts", "num_clears")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._starts = array("Q")
        self._num_raw = array("Q")
        self._num_read = 0
        self.num_clears = 0

    def add(self, event: KvEvent, start: int, num_before: int) -> None:
        """The scan has read one more.

        Args:
            start: where it stands.
            num_before: raw events since the last one that was read; more than 64 are not read again.
        """
        if self._starts and num_before <= _MAX_PASSED:
            self._num_raw[-1] += num_before + 1
        else:
            self._starts.append(start)
            self._num_raw.append(1)
        self._num_read += 1
        self.num_clears += isinstance(event, AllBlocksCleared) and event.medium is None

    @property
    def num_walked(self) -> int:
        """Raw events that a walk reads."""
        return sum(self._num_raw)

    def __len__(self) -> int:
        return self._num_read

    def __iter__(self) -> Iterator[KvEvent]:
        for start, num_raw in zip(self._starts, self._num_raw, strict=True):
            unpacker = _unpacker(self._payload, start)
            for _ in range(num_raw):
                event = read_event(unpacker.unpack())
                if not isinstance(event, SkipReason):
                    yield event

    @overload
    def __getitem__(self, index: int) -> KvEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[KvEvent]: ...
    def __getitem__(self, index: int | slice) -> KvEvent | Sequence[KvEvent]:
        """O(events): for looking, not for walking."""
        return list(self)[index]


class ScannedPayload(bytes):
    """A payload whose batch is known, as None where it is no batch: it need not be read again.

    O(bytes) to make.
    """

    batch: EventBatch | None

    def __new__(cls, payload: bytes, batch: EventBatch | None) -> "ScannedPayload":
        scanned = super().__new__(cls, payload)
        scanned.batch = batch
        return scanned


class BatchScan:
    """One payload on its way to a batch.

    Attributes:
        batch: what it says; None until it is scanned, and where it is no batch.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._events: LongEvents | None = None
        self._skipped = SkippedEvents()
        self._steps = self._scan()
        self._position = 0
        self.batch: EventBatch | None = None

    def payload(self) -> ScannedPayload:
        """The payload with what was found in it."""
        return ScannedPayload(self._payload, self.batch)

    def proceed(self, num_events: int) -> bool:
        """Look at so many events more, or 128 KiB of them; True when the payload is scanned, or cannot be read."""
        end = self._position + _STEP_BYTES
        for _ in range(num_events):
            try:
                self._position = next(self._steps)
            except StopIteration:
                return True
            except _FAULTS:
                self.batch = None
                return True
            if self._position >= end:
                break
        return False

    def _scan(self) -> Iterator[int]:
        """One step an event, or a field beyond the usual ones.

        Yields:
            How many bytes it has looked at.

        Raises:
            _FAULTS: it is no batch.
        """
        payload = self._payload
        kind = payload[:1]
        if kind not in _ARRAYS and kind not in _MAPS:
            raise UndecodablePayloadError("neither an array nor a map")
        unpacker = _unpacker(payload, 0)
        is_map = kind in _MAPS
        num_fields = unpacker.read_map_header() if is_map else unpacker.read_array_header()
        fields: dict[object, object] = {}
        for place in range(num_fields):
            if is_map:
                name = self._value(unpacker)
            else:
                name = BATCH_PLACES[place] if place < len(BATCH_PLACES) else None
            is_known = name in BATCH_NAMES
            if is_known:
                fields.pop(name, None)  # named twice: the last one counts
            start = unpacker.tell()
            if name == "events" and payload[start : start + 1] in _ARRAYS:
                yield from self._scan_events(unpacker)
                fields[name] = self._events
                continue
            value = self._value(unpacker)
            if is_known:
                fields[name] = value
            if place >= len(BATCH_PLACES):
                yield unpacker.tell()
        if unpacker.tell() != len(payload) or not isinstance(fields.get("events"), LongEvents):
            raise UndecodablePayloadError("no event list, or something behind the batch")
        assert self._events is not None
        ts, dp_rank = batch_time(fields), batch_rank(fields)
        self.batch = EventBatch(ts, self._events, dp_rank, self._skipped)

    def _scan_events(self, unpacker: "msgpack.Unpacker[object]") -> Iterator[int]:
        """The list that comes next; it takes the place of any that came before."""
        events = self._events = LongEvents(self._payload)
        skipped = self._skipped = SkippedEvents()
        num_raw, num_before = unpacker.read_array_header(), 0
        ahead = _Ahead(self._payload, unpacker.tell())
        for _ in range(num_raw):
            start = unpacker.tell()
            event: KvEvent | SkipReason = SkipReason.TOO_LONG
            if ahead.fits():
                event = read_event(unpacker.unpack())
            else:
                unpacker.skip()
            if isinstance(event, SkipReason):
                skipped.add(event)
                num_before += 1 if event is not SkipReason.TOO_LONG else _MAX_PASSED + 1
            else:
                events.add(event, start, num_before)
                num_before = 0
            yield unpacker.tell()

    def _value(self, unpacker: "msgpack.Unpacker[object]") -> object:
        """The next value; None in place of one that is too long."""
        if _Ahead(self._payload, unpacker.tell()).fits():
            return unpacker.unpack()
        unpacker.skip()
        return None


class _Ahead:
    """Goes before a reader, value by value, to see how long they are. Where none can be too long it does nothing."""

    __slots__ = ("_at", "_unpacker")

    def __init__(self, payload: bytes, start: int) -> None:
        can_be_long = len(payload) - start > MAX_EVENT_BYTES
        self._unpacker = _unpacker(payload, start) if can_be_long else None
        self._at = 0

    def fits(self) -> bool:
        """Whether the next value can be read in one go. O(its bytes), in C."""
        if self._unpacker is None:
            return True
        before = self._at
        self._unpacker.skip()
        self._at = self._unpacker.tell()
        return self._at - before <= MAX_EVENT_BYTES


def _unpacker(payload: bytes, start: int) -> "msgpack.Unpacker[object]":
    stream = BytesIO(payload)
    stream.seek(start)
    size = len(payload)
    return msgpack.Unpacker(
        stream,
        read_size=min(_READ_BYTES, max(size, 1)),
        strict_map_key=False,
        unicode_errors="replace",
        max_buffer_size=max(size, 1),
    )
