"""Metrics of streams: whatever a stream counts is exported."""

from dataclasses import fields

from indexer.actions import LossCause
from indexer.stream_status import ResetCause, StreamCounters, StreamStatus
from indexer.trust import Trust
from protocol import Rank, SkipReason, WorkerId
from router.stream_metrics import stream_metrics

DERIVED = {"losses"}  # the sum of what is exported by cause


def status(counters: StreamCounters) -> StreamStatus:
    return StreamStatus(
        rank=Rank(WorkerId("w")),
        trust=Trust.EXACT,
        has_replay=True,
        is_connected=True,
        last_seq=None,
        held_batches=0,
        held_bytes=0,
        last_event_at=None,
        last_live_at=None,
        last_ts=None,
        last_loss=None,
        counters=counters,
    )


def test_every_count_is_exported() -> None:
    """Each count has a value of its own, which some sample has."""
    counters = StreamCounters(
        skipped={reason: 2_000 + i for i, reason in enumerate(SkipReason)},
        losses_by_cause={cause: 3_000 + i for i, cause in enumerate(LossCause)},
        resets={cause: 4_000 + i for i, cause in enumerate(ResetCause)},
    )
    expected = {*counters.skipped.values(), *counters.losses_by_cause.values()}
    expected |= {*counters.resets.values()}
    plain = [f.name for f in fields(StreamCounters) if isinstance(getattr(counters, f.name), int)]
    for number, name in enumerate(plain, 1_000):
        setattr(counters, name, number)
        if name not in DERIVED:
            expected.add(number)
    families = list(stream_metrics([status(counters)], 0.0, 0.0))
    found = {sample.value for family in families for sample in family.samples}
    assert expected <= found, [name for i, name in enumerate(plain, 1_000) if i not in found]
