"""Published batches of one rank: numbered without gaps, encoded once, the latest kept for replay."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from protocol import (
    EventBatch,
    KvEvent,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    encode_batch,
    replay_frames,
)


class Dialect(Protocol):
    """How one engine writes batches, and replies to who asks for them again."""

    def write(self, batch: EventBatch) -> bytes:
        """Payload of a batch."""
        ...

    def replay_frames(self, topic: bytes, reply: ReplayReply | ReplayEnd) -> list[bytes]:
        """Frames of a reply, as a DEALER receives them."""
        ...


class SglangDialect:
    """SGLang 0.5.23."""

    def write(self, batch: EventBatch) -> bytes:
        """Positional batch of maps."""
        return encode_batch(batch)

    def replay_frames(self, topic: bytes, reply: ReplayReply | ReplayEnd) -> list[bytes]:
        """With a topic frame."""
        return replay_frames(topic, reply)


class BatchLog:
    """The last ``buffer_steps`` batches; at the bound the oldest is forgotten, so that a replay from
    below it begins later than asked, as the engines' do."""

    def __init__(
        self, dp_rank: int, topic: str, buffer_steps: int, dialect: Dialect | None = None
    ) -> None:
        self._dialect = dialect or SglangDialect()
        self._dp_rank = dp_rank
        self._topic = topic.encode()
        self._kept: deque[ReplayReply] = deque(maxlen=buffer_steps)
        self._next_seq = 0

    @property
    def last_seq(self) -> int | None:
        """Number of the latest batch; None before the first."""
        return self._next_seq - 1 if self._next_seq else None

    def append(self, events: Sequence[KvEvent], ts: float) -> LiveMessage | None:
        """Number and keep one batch.

        Args:
            ts: wall clock, seconds since the epoch.

        Returns:
            The message to send; None for a batch without events, which takes no number.
        """
        if not events:
            return None
        payload = self._dialect.write(EventBatch(ts, events, self._dp_rank))
        message = LiveMessage(self._topic, self._next_seq, payload)
        self._kept.append(ReplayReply(message.seq, payload))
        self._next_seq += 1
        return message

    def replay(self, first_seq: int) -> list[ReplayReply | ReplayEnd]:
        """Every kept batch from ``first_seq`` on, then the end marker. O(answer)."""
        oldest = self._next_seq - len(self._kept)
        skip = max(0, first_seq - oldest)
        return [*islice(self._kept, skip, None), ReplayEnd()]

    def frames(self, reply: ReplayReply | ReplayEnd) -> list[bytes]:
        """A reply as it is sent."""
        return self._dialect.replay_frames(self._topic, reply)

    def check(self) -> None:
        """Verify that numbers are dense."""
        kept = [reply.seq for reply in self._kept]
        assert kept == list(range(self._next_seq - len(kept), self._next_seq)), kept
