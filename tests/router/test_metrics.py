"""Metrics of index and streams: each counts what it says, and a worker that goes takes its series along."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

from indexer.actions import ForgetReason, LossCause
from indexer.findings import FindingKind
from indexer.match import Prompt
from indexer.stream_status import ResetCause
from indexer.trust import Trust
from protocol import (
    BlockRemoved,
    BlockStored,
    EventBatch,
    EventSource,
    KvEvent,
    LiveMessage,
    Rank,
    ReplayEnd,
    WorkerId,
    encode_batch,
    live_frames,
    pack_tokens,
    replay_frames,
)
from router.counters import DataCounters
from router.metrics import MetricSources, exposition, scrape
from router.ticker import Ticker
from router.worker_record import WorkerState
from tests.router.brains import TestFleet, fleet, source

RANK = Rank(WorkerId("w0"))
WALL_OFFSET_S = 5000.0

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def sources_of(one: TestFleet) -> MetricSources:
    brains = one.brains
    return MetricSources(
        DataCounters(),
        brains.planner,
        brains.index,
        brains.intake,
        brains.subscriber,
        one.registry,
        Ticker({}),
        one.clock,
        lambda: one.clock.now + WALL_OFFSET_S,
    )


def samples_of(one: TestFleet) -> Samples:
    """Every sample, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(sources_of(one)).decode())
        for sample in family.samples
    }


def of_rank(samples: Samples, name: str, **labels: str) -> float:
    named = {"worker": "w0", "dp_rank": "0", **labels}
    return samples[f"kvroute_{name}", tuple(sorted(named.items()))]


def stored(*blocks: int, medium: str = "GPU", parent: int | None = None) -> BlockStored:
    tokens = [token for block in blocks for token in range(4 * block, 4 * block + 4)]
    return BlockStored(list(blocks), parent, tokens, 4, medium)


def live(one: TestFleet, spoken: EventSource, seq: int, *events: KvEvent, ts: float = 0.0) -> None:
    payload = encode_batch(EventBatch(ts or one.clock.now + WALL_OFFSET_S, events, 0))
    frames = live_frames(LiveMessage(b"", seq, payload))
    one.brains.intake.on_live(spoken, frames, one.clock.now)


def test_what_a_stream_brings_is_counted_by_rank_and_tier() -> None:
    with fleet() as one:
        spoken = source()
        one.learn(sources=(spoken,))
        one.brains.intake.on_connected(spoken, one.clock.now)
        live(one, spoken, 0, stored(1, 2), stored(1, 2, medium="CPU"), stored(9, parent=77))
        live(one, spoken, 1, stored(1), BlockRemoved([5], "DISK"), stored(3, medium="TAPE"))
        one.clock.now += 2.0
        live(one, spoken, 2, ts=one.clock.now + WALL_OFFSET_S - 0.25)
        one.clock.now += 3.0
        samples = samples_of(one)
    assert of_rank(samples, "stream_batches_total") == 3
    assert of_rank(samples, "stream_events_total") == 6
    assert of_rank(samples, "stream_connected") == 1
    assert of_rank(samples, "stream_lag_seconds") == pytest.approx(0.25)
    assert of_rank(samples, "stream_last_event_age_seconds") == pytest.approx(3.0)
    assert of_rank(samples, "rank_blocks", tier="gpu") == 2
    assert of_rank(samples, "rank_blocks", tier="host_pinned") == 2
    assert of_rank(samples, "rank_blocks", tier="storage") == 0
    assert of_rank(samples, "rank_parked") == 1
    assert of_rank(samples, "rank_unnamed") == 1
    assert of_rank(samples, "duplicate_stores_total", tier="gpu") == 1
    assert of_rank(samples, "unknown_removals_total", tier="storage") == 1
    assert samples["kvroute_index_skips_total", (("reason", "unknown_medium"),)] == 1
    assert samples["kvroute_index_blocks", ()] == 2
    assert samples["kvroute_index_claims", (("tier", "gpu"),)] == 2
    assert samples["kvroute_index_parked", ()] == 1
    assert samples["kvroute_index_bytes", ()] == one.brains.index.size_bytes() > 0


def test_gaps_replays_losses_and_resets_are_counted_by_cause() -> None:
    with fleet() as one:
        spoken = source(has_replay=True)
        one.learn(sources=(spoken,))
        intake = one.brains.intake
        intake.on_connected(spoken, one.clock.now)
        intake.on_replay(spoken, replay_frames(b"", ReplayEnd()), one.clock.now)
        live(one, spoken, 0, stored(1))
        live(one, spoken, 3, stored(2))  # 1 and 2 are asked for, and are not there
        intake.on_replay(spoken, replay_frames(b"", ReplayEnd()), one.clock.now)
        live(one, spoken, 3, stored(2))  # again
        live(one, spoken, 0, stored(5), ts=1.0)  # another process
        samples = samples_of(one)
    assert of_rank(samples, "stream_gaps_total") == 1
    losses = {
        cause: of_rank(samples, "stream_losses_total", cause=str(cause)) for cause in LossCause
    }
    assert losses == {cause: float(cause is LossCause.TRUNCATED) for cause in LossCause}
    assert of_rank(samples, "stream_lost_batches_total") >= 2
    assert of_rank(samples, "stream_duplicates_total") == 1
    assert of_rank(samples, "stream_replays_total") >= 2
    assert of_rank(samples, "stream_replay_endings_total", ending="completed") >= 1
    resets = {
        cause: of_rank(samples, "stream_resets_total", cause=str(cause)) for cause in ResetCause
    }
    assert resets == {cause: float(cause is ResetCause.LOWER_NUMBER) for cause in ResetCause}
    assert of_rank(samples, "rank_resets_total", reason=str(ForgetReason.RESTARTED)) == 1


def test_what_cannot_be_read_is_counted_with_its_reason() -> None:
    import msgpack

    with fleet() as one:
        spoken = source()
        one.learn(sources=(spoken,))
        one.brains.intake.on_connected(spoken, one.clock.now)
        live(one, spoken, 0, stored(1))
        for seq, payload in ((1, msgpack.packb([1.0, [{"type": "New"}], 0])), (2, b"\xc1")):
            frames = live_frames(LiveMessage(b"", seq, payload))
            one.brains.intake.on_live(spoken, frames, one.clock.now)
        one.brains.intake.on_live(spoken, [b"x"], one.clock.now)
        samples = samples_of(one)
    assert of_rank(samples, "stream_skipped_total", reason="unknown_event") == 1
    assert of_rank(samples, "stream_unreadable_total") == 1
    assert of_rank(samples, "event_source_total", kind="bad_frames") == 1


def test_evidence_and_contradictions_are_counted_by_rank() -> None:
    with fleet() as one:
        one.learn()
        index, now = one.brains.index, one.clock.now
        prompt = Prompt(pack_tokens(list(range(40))), "m")
        index.predict(RANK, prompt, now)
        index.observe(RANK, prompt, now)
        held = index.match(prompt, [RANK], now)[0]
        index.report(RANK, prompt, 0, held, now, now)
        samples = samples_of(one)
    assert of_rank(samples, "rank_observed") > 0
    assert samples["kvroute_index_observed", ()] == of_rank(samples, "rank_observed")
    assert of_rank(samples, "rank_served_total") == 1
    assert of_rank(samples, "rank_reports_total") == 1
    assert of_rank(samples, "rank_claimed_blocks_total") == 10
    assert of_rank(samples, "rank_reported_blocks_total") == 0
    assert of_rank(samples, "rank_contradictions_total") == 1
    assert of_rank(samples, "rank_purges_total") == 0


def test_every_finding_and_trust_has_a_series_and_those_there_are_count() -> None:
    with fleet() as one:
        one.learn()
        one.learn("w1", sources=(source("w1"),))
        samples = samples_of(one)
    findings = {kind: samples["kvroute_findings", (("kind", str(kind)),)] for kind in FindingKind}
    assert findings[FindingKind.EVENTS_MISSING] == 1
    assert findings[FindingKind.REPLAY_OFF] == 1
    assert sum(findings.values()) == 2
    trust = {one: samples["kvroute_ranks", (("trust", str(one)),)] for one in Trust}
    assert sum(trust.values()) == 2


def test_every_state_of_a_worker_has_a_series() -> None:
    """One that ends with the last worker of a state shows its last figure where it is summed or alerted on."""
    with fleet() as one:
        before = samples_of(one)
        one.learn(sources=())
        after = samples_of(one)
    states = {state: ("kvroute_workers", (("state", str(state)),)) for state in WorkerState}
    serving = states[WorkerState.SERVING]
    assert sum(before[one] for one in states.values()) == 0
    assert [after[one] for one in states.values() if one != serving] == [0] * (len(states) - 1)
    assert after[serving] == 1


def test_all_ranks_with_a_finding_count_though_few_are_named() -> None:
    with fleet() as one:
        one.learn("w1", sources=(source("w1"),), num_ranks=100)
        (unheard, _) = sorted(one.brains.index.findings(one.clock.now), key=lambda gap: gap.kind)
        samples = samples_of(one)
    assert (unheard.kind, len(unheard.ranks)) == (FindingKind.EVENTS_MISSING, 64)
    assert samples["kvroute_findings", (("kind", "events_missing"),)] == 99


def test_a_worker_that_goes_takes_its_series_along() -> None:
    with fleet() as one:
        for name, port in (("w0", 1), ("w1", 2)):
            spoken = source(name, port)
            one.learn(name, sources=(spoken,))
            one.brains.intake.on_connected(spoken, one.clock.now)
            live(one, spoken, 0, stored(1))
        assert any(("worker", "w0") in labels for _, labels in samples_of(one))
        one.registry.remove(WorkerId("w0"))
        samples = samples_of(one)
    workers = {value for _, labels in samples for name, value in labels if name == "worker"}
    assert workers == {"w1"}


def test_label_values_are_of_closed_sets_or_name_ranks() -> None:
    """Text of an engine is no label: a medium, a topic, an adapter or an event of an odd name makes no series."""
    odd = "odd-name"
    with fleet() as one:
        spoken = source()
        one.learn(model=odd, version=odd, sources=(spoken,), adapters=(odd,))
        one.brains.intake.on_connected(spoken, one.clock.now)
        event = BlockStored([1], None, [1, 2, 3, 4], 4, odd, 1, odd, odd, odd, None, 3, odd)
        live(one, spoken, 0, event)
        samples = samples_of(one)
    assert not any(odd in value for _, labels in samples for _, value in labels)


async def test_a_scrape_says_the_same_and_leaves_the_loop_to_others() -> None:
    num_turns = 0

    async def other() -> None:
        nonlocal num_turns
        while True:
            await asyncio.sleep(0)
            num_turns += 1

    with fleet() as one, ThreadPoolExecutor(1) as executor:
        one.learn(sources=(source(),))
        task = asyncio.ensure_future(other())
        text = await scrape(sources_of(one), executor)
        assert text == exposition(sources_of(one))
        task.cancel()
    assert num_turns >= 5  # between the parts
