"""Metrics of the event streams and of the sockets that bring them."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import Metric

from indexer.actions import LossCause
from indexer.event_traffic import EventTraffic
from indexer.stream_status import ResetCause, StreamCounters, StreamStatus
from router.metric_families import by_one, counter, gauges

_RANK = ("worker", "dp_rank")


def stream_metrics(
    statuses: Sequence[StreamStatus], now: float, wall_offset_s: float
) -> Iterator[Metric]:
    """Every metric of the streams; O(streams).

    Args:
        now: monotonic seconds.
        wall_offset_s: wall clock minus monotonic clock.
    """
    for name, (text, value) in _COUNTERS.items():
        values = [(_name(one), value(one.counters)) for one in statuses]
        yield counter(f"stream_{name}", text, _RANK, values)
    yield from _by_label(statuses)
    connected = [(_name(one), float(one.is_connected)) for one in statuses]
    yield gauges("stream_connected", "Is the event socket connected?", _RANK, connected)
    held = [(_name(one), one.held_batches) for one in statuses]
    yield gauges("stream_held_batches", "Batches that wait for a replay.", _RANK, held)
    lags = [
        (_name(one), lag_s) for one in statuses if (lag_s := one.lag_s(wall_offset_s)) is not None
    ]
    text = "Publication to application of the last batch that was not replayed, by the clocks of both machines."
    yield gauges("stream_lag_seconds", text, _RANK, lags)
    ages = [
        (_name(one), now - one.last_event_at) for one in statuses if one.last_event_at is not None
    ]
    yield gauges("stream_last_event_age_seconds", "Seconds since the last event.", _RANK, ages)


def socket_metrics(traffic: EventTraffic) -> Iterator[Metric]:
    """What happened on the sockets, beside the streams."""
    yield counter(
        "event_sockets",
        "Messages and replies received, sockets and replays that failed, messages of no source, failures of our own.",
        ("kind",),
        by_one(traffic.overall),
    )
    by_rank = [
        ((rank.worker, str(rank.dp_rank), kind), count)
        for rank, counts in traffic.by_rank.items()
        for kind, count in counts.items()
    ]
    text = "Connections of a rank's event socket, what came by it that was dropped, and what failed at it."
    yield counter("event_source", text, (*_RANK, "kind"), by_rank)


def _by_label(statuses: Sequence[StreamStatus]) -> Iterator[Metric]:
    losses = [
        ((*_name(one), str(cause)), one.counters.losses_by_cause.get(cause, 0))
        for one in statuses
        for cause in LossCause
    ]
    text = "Losses that no replay repaired, by why."
    yield counter("stream_losses", text, (*_RANK, "cause"), losses)
    resets = [
        ((*_name(one), str(cause)), one.counters.resets.get(cause, 0))
        for one in statuses
        for cause in ResetCause
    ]
    text = "Restarts of the publisher, by how they were noticed."
    yield counter("stream_resets", text, (*_RANK, "cause"), resets)
    endings = [
        ((*_name(one), ending), value(one.counters))
        for one in statuses
        for ending, value in _ENDINGS.items()
    ]
    text = "How replays ended; one may be truncated or have holes and complete."
    yield counter("stream_replay_endings", text, (*_RANK, "ending"), endings)
    skipped = [
        ((*_name(one), str(reason)), count)
        for one in statuses
        for reason, count in one.counters.skipped.items()
    ]
    yield counter("stream_skipped", "Events that could not be read.", (*_RANK, "reason"), skipped)


def _name(status: StreamStatus) -> tuple[str, str]:
    return status.rank.worker, str(status.rank.dp_rank)


_Value = Callable[[StreamCounters], int]
_COUNTERS: dict[str, tuple[str, _Value]] = {
    "batches": ("Batches applied.", lambda one: one.batches),
    "replayed_batches": ("Those of them that came by replay.", lambda one: one.replayed_batches),
    "events": ("Events in them.", lambda one: one.events),
    "duplicates": ("Live batches that were applied before.", lambda one: one.duplicates),
    "replayed_old": ("Replayed batches that were applied before.", lambda one: one.replayed_old),
    "implausible": (
        "Live batches dropped because their number is far beyond the expected one.",
        lambda one: one.implausible,
    ),
    "gaps": ("Jumps of the sequence number.", lambda one: one.gaps),
    "lost_batches": ("Batches lost for good.", lambda one: one.lost_batches),
    "missed_before_join": (
        "Batches published before they were listened to, and not replayed.",
        lambda one: one.missed_before_join,
    ),
    "unreadable": ("Batches that could not be decoded.", lambda one: one.unreadable),
    "partly_read": ("Batches with an event that could not be read.", lambda one: one.partly_read),
    "clears": ("Full clears.", lambda one: one.clears),
    "replays": ("Replays asked for.", lambda one: one.replays),
    "replays_failed": (
        "Replays that broke off or never came.",
        lambda one: one.replays_failed,
    ),
    "hold_overflows": (
        "Times the batches that waited for a replay were too many.",
        lambda one: one.hold_overflows,
    ),
    "discarded": (
        "Batches that waited for a replay and were dropped, for another one brings them again.",
        lambda one: one.discarded,
    ),
    "regressions": (
        "Live numbers that fell back during a replay.",
        lambda one: one.regressions,
    ),
    "rebuilds": (
        "Times a full replay took the place of doubtful claims.",
        lambda one: one.rebuilds,
    ),
}
_ENDINGS: dict[str, _Value] = {
    "completed": lambda one: one.replays_completed,
    "failed": lambda one: one.replays_failed,
    "cut": lambda one: one.replays_cut,
    "truncated": lambda one: one.replays_truncated,
    "holes": lambda one: one.replay_holes,
}
