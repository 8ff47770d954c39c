"""Bounds of the stream machine, each with what happens when it is reached."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How much one stream may hold, how long it waits, how often it asks.

    Attributes:
        hold_batches: live batches held during a replay, and applied in one go after it: 64 take about
            4 ms, 12 ms where each stores 1,000 tokens. From half of the bound on the others wait at the
            socket. At the bound the missing ones are declared lost, what is held is applied in order,
            and the rank is degraded.
        hold_bytes: the same bound over their payloads, bytes; and over those of replies that cannot be read and may be
            of any of several ranks, beyond which none of these is whole.
        remembered_payloads: last applied numbers whose payloads are known by digest. A lower live
            number beyond them cannot be compared: it is a restart if the live socket had passed it
            before, and an overlap with a replay if not.
        replay_timeout_s: silence within a replay. At the bound it has failed: what is missing is lost.
        replay_total_s: length of one replay. At the bound it is cut and asked for again from where it
            stands.
        replay_replies: replies of one replay. At the bound it is cut likewise.
        replay_rounds: replays in a row without one that leaves nothing open. At the bound what is
            missing is lost, and no replay is asked for until the next repair or reconnect.
        repair_s: wait before claims in doubt are rebuilt by a replay from 0; doubles with each failure.
        repair_max_s: upper bound of that wait.
        settle_s: silence after a replay before its end is checked once more, for batches published
            before the subscription was in force.
        silence_s: silence of the live socket before the replay socket is asked whether there was more.
        max_jump: how far a number may be beyond the expected one. Beyond it lies no number of the same
            process: the message is dropped and a replay asked whether there is another one. Without a
            replay that answers it is another one. No single jump counts for more lost batches.
        max_dp_rank: highest rank that a batch may name. Batches beyond it are refused and counted.
    """

    hold_batches: int = 64
    hold_bytes: int = 32 << 20
    remembered_payloads: int = 1024
    replay_timeout_s: float = 5.0
    replay_total_s: float = 60.0
    replay_replies: int = 100_000
    replay_rounds: int = 8
    repair_s: float = 10.0
    repair_max_s: float = 320.0
    settle_s: float = 1.0
    silence_s: float = 30.0
    max_jump: int = 1_000_000
    max_dp_rank: int = 511


DEFAULT_STREAM_LIMITS = StreamLimits()
