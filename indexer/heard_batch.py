"""One numbered message as it was heard, live or replayed."""

from typing import NamedTuple

from protocol import EventBatch, ScannedPayload, UndecodablePayloadError, decode_batch


class HeardBatch(NamedTuple):
    """A sequence number, the payload under it, and what it says (None: it cannot be read)."""

    seq: int
    payload: bytes
    batch: EventBatch | None

    @classmethod
    def read(cls, seq: int, payload: bytes) -> "HeardBatch":
        """Decode ``payload``; O(bytes), O(1) if it is scanned. Never raises for what a publisher sent."""
        if isinstance(payload, ScannedPayload):
            return cls(seq, payload, payload.batch)
        try:
            return cls(seq, payload, decode_batch(payload))
        except UndecodablePayloadError:
            return cls(seq, payload, None)
