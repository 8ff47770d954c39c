"""Long payloads, read in steps: first what the batch says as a whole, then its events one by one.

A payload of 10^5 events takes a second to decode and ten times its size in memory. So it is scanned once, a
few events at a time, for what a stream must know before the first event is applied (rank, clock, clears, and
whether everything can be read), and its events are decoded again as they are taken. In between only the bytes
are kept. One event is always read in one go.

The answer is that of ``decode_batch`` for the same bytes.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import overload

import msgpack

from protocol.codec import UndecodablePayloadError, batch_rank, batch_time, decode_batch, read_event
from protocol.events import AllBlocksCleared, EventBatch, KvEvent, SkipReason

_READ_BYTES = 64 << 10
_ARRAYS = frozenset(bytes([kind]) for kind in (*range(0x90, 0xA0), 0xDC, 0xDD))
_MAPS = frozenset(bytes([kind]) for kind in (*range(0x80, 0x90), 0xDE, 0xDF))
_FIELDS = ("ts", "events", "rank")  # of a positional batch
_FAULTS = (ValueError, TypeError, OverflowError, msgpack.UnpackException)


class LongEvents(Sequence[KvEvent]):
    """The readable events of a scanned payload; each walk along them decodes them anew.

    Attributes:
        num_clears: clears of every tier among them.
    """

    def __init__(self, payload: bytes, start: int, num_raw: int, num_read: int, num_clears: int):
        self._payload = payload
        self._start = start
        self._num_raw = num_raw
        self._num_read = num_read
        self.num_clears = num_clears

    def __len__(self) -> int:
        return self._num_read

    def __iter__(self) -> Iterator[KvEvent]:
        unpacker = _unpacker(self._payload, self._start)
        for _ in range(self._num_raw):
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
        self._steps = self._scan()
        self.batch: EventBatch | None = None

    def payload(self) -> ScannedPayload:
        """The payload with what was found in it."""
        return ScannedPayload(self._payload, self.batch)

    def proceed(self, num_events: int) -> bool:
        """Look at so many events more; True when the payload is scanned, or cannot be read."""
        for _ in range(num_events):
            try:
                if next(self._steps, False) is False:
                    return True
            except _FAULTS:
                self.batch = None
                return True
        return False

    def _scan(self) -> Iterator[bool]:
        """One step an event.

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
        events: LongEvents | None = None
        skipped: list[SkipReason] = []
        for place in range(num_fields):
            name = unpacker.unpack() if is_map else _FIELDS[place] if place < 3 else None
            if name == "events" and (events is not None or name in fields):
                self.batch = decode_batch(payload)  # named twice: rare enough to be read in one go
                return
            start = unpacker.tell()
            if name != "events" or payload[start : start + 1] not in _ARRAYS:
                fields[name] = unpacker.unpack()
                continue
            num_raw = unpacker.read_array_header()
            start, num_clears = unpacker.tell(), 0
            for _ in range(num_raw):
                event = read_event(unpacker.unpack())
                if isinstance(event, SkipReason):
                    skipped.append(event)
                elif isinstance(event, AllBlocksCleared) and event.medium is None:
                    num_clears += 1
                yield True
            num_read = num_raw - len(skipped)
            events = LongEvents(payload, start, num_raw, num_read, num_clears)
        if unpacker.tell() != len(payload) or "events" in fields or events is None:
            raise UndecodablePayloadError("no event list, or something behind the batch")
        self.batch = EventBatch(batch_time(fields), events, batch_rank(fields), skipped)


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
