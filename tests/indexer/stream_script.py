"""Scripts for stream machines: one step a line, with what it must lead to.

    live 3          a live message with number 3
    reply 3, end    a replayed message, the end marker
    fail, cut       the replay broke, or reached a bound
    muddled         the end marker, after replies that cannot be read
    garbled         the end marker, after replies that are none
    short           the end marker, where what the rank has published may have left the buffer
    connected, disconnected
    tick 10         time passes, to the tenth second
    tick 10 purged  the same, and no claim is left of what was heard
    resume 7 exact  claims were loaded that rest on number 7, whose rank was exact

A number may be followed by ``b`` (another process: other bytes), ``?`` (an unreadable payload), ``!`` (the
batch holds a full clear), ``~`` (its last event cannot be read) or ``*`` (is of an unknown kind). After ``->`` stand the actions, after ``|`` the trust where it matters:

    live 8   -> replay 5           | rebuilding
"""

from collections.abc import Sequence

import msgpack
from xxhash import xxh3_64_intdigest

from indexer import (
    Apply,
    EventStream,
    Forget,
    HeardBatch,
    RecordLoss,
    ReplayEnding,
    RequestReplay,
    StreamAction,
    StreamLimits,
    Trust,
)
from protocol import AllBlocksCleared, BlockStored, EventBatch, KvEvent, encode_batch

SMALL = StreamLimits(hold_batches=3, hold_bytes=10_000, remembered_payloads=2, replay_rounds=2)

_ENDINGS = {
    "end": ReplayEnding.COMPLETE,
    "cut": ReplayEnding.CUT,
    "fail": ReplayEnding.FAILED,
    "muddled": ReplayEnding.UNREADABLE,
    "garbled": ReplayEnding.GARBLED,
    "short": ReplayEnding.SHORT,
}


def payload(seq: int, marks: str = "") -> bytes:
    """The payload of number ``seq``; ``marks`` as in a script."""
    ts = seq + (1e6 if "b" in marks else 0.0)
    stored = BlockStored([seq], None, [seq], 1, "GPU")
    events: list[KvEvent] = [AllBlocksCleared(), stored] if "!" in marks else [stored]
    packed = encode_batch(EventBatch(ts, events, 0))
    if "~" in marks:
        packed = _with_event(packed, ["BlockRemoved", ["no hash"]])
    if "*" in marks:
        packed = _with_event(packed, ["BlockMoved", [seq]])
    return b"\xc1" + packed if "?" in marks else packed


def _with_event(packed: bytes, event: list[object]) -> bytes:
    ts, events, rank = msgpack.unpackb(packed)
    extended: bytes = msgpack.packb([ts, [*events, event], rank])
    return extended


def heard(word: str) -> HeardBatch:
    """``3b`` and the like as a message."""
    digits = word.rstrip("b?!~*")
    return HeardBatch.read(int(digits), payload(int(digits), word[len(digits) :]))


def play(
    script: str, *, has_replay: bool = True, limits: StreamLimits | None = None
) -> EventStream:
    """Run ``script`` on a new stream, compare every step, verify the invariants after each."""
    stream = EventStream(has_replay, limits or StreamLimits())
    now = 0.0
    for line in filter(None, map(str.strip, script.splitlines())):
        step, _, outcome = line.partition("->")
        actions, _, trust = outcome.partition("|")
        verb, *words = step.split()
        if verb == "tick":
            now = float(words[0])
        found = ", ".join(map(_said, _take(stream, verb, words, now)))
        assert found == actions.strip(), f"{line!r}: {found!r}"
        assert not trust.strip() or stream.trust == trust.strip(), f"{line!r}: {stream.trust}"
        stream.check()
    return stream


def _take(stream: EventStream, verb: str, words: list[str], now: float) -> Sequence[StreamAction]:
    match verb:
        case "live":
            return [a for word in words for a in stream.on_live(heard(word), now)]
        case "reply":
            return [a for word in words for a in stream.on_reply(heard(word), now)]
        case "connected":
            return stream.on_connected()
        case "disconnected":
            stream.on_disconnected()
            return []
        case "resume":
            stream.resume(int(words[0]), _digests(int(words[0])), Trust(words[1]))
            return []
        case "tick":
            return stream.on_tick(now, is_purged="purged" in words)
        case _:
            return stream.on_replay_end(_ENDINGS[verb], now)


def _digests(seq: int) -> list[tuple[int, int]]:
    return [(n, xxh3_64_intdigest(payload(n))) for n in range(max(seq - 2, 0), seq + 1)]


def _said(action: StreamAction) -> str:
    match action:
        case Apply(seq):
            return f"apply {seq}"
        case Forget(reason):
            return f"forget {reason}"
        case RequestReplay(first_seq):
            return f"replay {first_seq}"
        case RecordLoss(first_seq, last_seq):
            return f"lost {first_seq}-{'' if last_seq is None else last_seq}"
