"""Bounds of the event sockets, each with what happens when it is reached."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of the sockets and of what is done in one go.

    Attributes:
        max_sockets: of an own ZeroMQ context; the router sets it by the files that it may open. A source
            takes three, and one more during a replay. At the bound further sources are not heard; they are
            counted and tried again.
        io_threads: of an own context.
        live_hwm: live messages queued by ZeroMQ for one source. At the bound the publisher queues, and
            at its own bound drops, which shows as a gap.
        live_messages: the same of all sources together: where there are more than a hundred, each has an equal share, by
            their number when its sockets open. They queue only while the loop is behind or a worker is taken over
            from a sibling; 10^6 batches of one decode step and 1 KB each are 1 GB.
        live_bytes: of them, of one source, by the longest that came of late; at the bound it is as with ``live_hwm``.
            At least one message fits. At a port that is listened to, of one connection.
        replay_hwm: the same for replies. Beyond it the publisher drops, which shows as a hole.
        replay_bytes: of them, likewise.
        turn_bytes: what one source, or all that are listened to at one port, may take in one go; a message fits always.
        max_message_bytes: of one frame; a larger one breaks the connection, which is made anew within twice
            ``reopen_s`` and counted as ``given_up``. The batch is missing then, and lost where its replay is
            as large.
        heartbeat_s, heartbeat_timeout_s: a peer that is silent for as long as both together is given up,
            and its name looked up anew within ``reopen_s``.
        reconnect_s, reconnect_max_s: wait between attempts, doubling.
        connect_timeout_s: of one attempt.
        other_address_s: without a connection for so long, the next address of a name is tried.
        lookup_threads: in which names are looked up. A resolver that hangs delays further names, and
            neither open connections nor sources that name addresses.
        messages_per_turn: what one source may take before others get their turn; no more than half of
            a stream's hold has room for.
        turn_s: how long turns may take, of one source or of several, before the loop does other things.
        long_bytes: of a payload; a longer one is read in steps.
        tick_s: how often time is told to the intake.
        reopen_s: wait before sockets that could not be opened are tried again, and before the name of one
            without a connection is looked up anew.
    """

    max_sockets: int = 16_384
    io_threads: int = 2
    live_hwm: int = 10_000
    live_messages: int = 1_000_000
    live_bytes: int = 256 << 20
    replay_hwm: int = 100_000
    replay_bytes: int = 1 << 30
    turn_bytes: int = 4 << 20
    max_message_bytes: int = 64 << 20
    heartbeat_s: float = 5.0
    heartbeat_timeout_s: float = 15.0
    reconnect_s: float = 0.1
    reconnect_max_s: float = 5.0
    connect_timeout_s: float = 5.0
    other_address_s: float = 15.0
    lookup_threads: int = 4
    messages_per_turn: int = 32
    turn_s: float = 0.003
    long_bytes: int = 32 << 10
    tick_s: float = 0.25
    reopen_s: float = 5.0

    def of_one(self, num_sources: int) -> "SocketLimits":
        """As they are for one of so many sources."""
        share = max(self.live_messages // max(num_sources, 1), 1)
        return replace(self, live_hwm=min(self.live_hwm, share))


DEFAULT_SOCKET_LIMITS = SocketLimits()
