"""ZeroMQ message frames around a payload: live messages, replay requests, replay replies.

    live            [topic, seq u64 BE, payload]
    replay request  [b"", first seq u64 BE]                     (as a DEALER sends it)
    replay reply    [b"", topic, seq, payload]                  SGLang 0.5.22+, vLLM 0.26+
                    [b"", seq, payload]                         older
    end marker      [b"", b"", ff*8, b""] or [b"", ff*8, b""]

Replies are read from the right, so both framings are one case.

Source: SGLang 0.5.23 and vLLM 0.32.0 ``ZmqEventPublisher``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

END_OF_REPLAY = b"\xff" * 8
_MAX_SEQ = (1 << 63) - 1


class BadFramesError(ValueError):
    """The message is no live event message or replay reply."""


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """One message of the PUB socket. ``seq`` counts the publisher's batches from 0."""

    topic: bytes
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReplayReply:
    """One replayed batch."""

    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ReplayEnd:
    """The publisher has sent all it had."""


def parse_live(frames: Sequence[bytes]) -> LiveMessage:
    """Read a live message.

    Raises:
        BadFramesError: not three frames, or a sequence number that is not eight bytes.
    """
    if len(frames) != 3:
        raise BadFramesError(f"{len(frames)} frames, not 3")
    topic, seq, payload = frames
    return LiveMessage(topic, _parse_seq(seq), payload)


def parse_replay(frames: Sequence[bytes]) -> ReplayReply | ReplayEnd:
    """Read a replay reply, with or without delimiter and topic frames.

    Raises:
        BadFramesError: fewer than two or more than four frames, or a bad sequence number.
    """
    if not 2 <= len(frames) <= 4:
        raise BadFramesError(f"{len(frames)} frames, not 2 to 4")
    seq, payload = frames[-2], frames[-1]
    if seq == END_OF_REPLAY:
        return ReplayEnd()
    return ReplayReply(_parse_seq(seq), payload)


def live_frames(message: LiveMessage) -> list[bytes]:
    """Frames of a live message as a publisher sends them."""
    return [message.topic, _pack_seq(message.seq), message.payload]


def replay_request(first_seq: int) -> list[bytes]:
    """Frames that ask for every buffered batch from ``first_seq`` on, as a DEALER sends them."""
    return [b"", _pack_seq(first_seq)]


def parse_replay_request(frames: Sequence[bytes]) -> int:
    """Read a request as the publisher's ROUTER gets it, without the identity frame.

    Raises:
        BadFramesError: not an empty delimiter followed by eight bytes.
    """
    if len(frames) != 2 or frames[0] != b"":
        raise BadFramesError("a replay request is an empty frame and a sequence number")
    return _parse_seq(frames[1])


def replay_frames(topic: bytes, reply: ReplayReply | ReplayEnd) -> list[bytes]:
    """Frames of a reply as a DEALER receives them, in the framing with a topic frame."""
    match reply:
        case ReplayReply(seq, payload):
            return [b"", topic, _pack_seq(seq), payload]
        case ReplayEnd():
            return [b"", b"", END_OF_REPLAY, b""]


def _pack_seq(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def _parse_seq(raw: bytes) -> int:
    if len(raw) != 8:
        raise BadFramesError(f"a sequence number of {len(raw)} bytes, not 8")
    seq = int.from_bytes(raw, "big")
    if seq > _MAX_SEQ:
        raise BadFramesError("a sequence number beyond 63 bits")
    return seq
