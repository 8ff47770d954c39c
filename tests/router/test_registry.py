"""Workers that come, change, fail and go, and what index, planner and streams hear of it."""

import logging

import pytest

from indexer.trust import Trust
from protocol import (
    BlockStored,
    EngineKind,
    EventBatch,
    LiveMessage,
    Rank,
    WorkerId,
    encode_batch,
    live_frames,
    pack_tokens,
)
from router.breaker import BreakerLimits
from router.discovery import NamedEvents
from router.registry import (
    Registry,
    RegistryFullError,
    RegistryLimits,
    UnknownWorkerError,
    WorkerExistsError,
)
from router.views import worker_view
from router.worker_record import WorkerState
from scoring import OutcomeKind, PlanRequest
from tests.router.brains import TestFleet, described, fleet, source


def test_a_worker_takes_part_once_it_is_learned() -> None:
    with fleet() as one:
        record = one.registry.add(WorkerId("w0"), "http://w0", one.clock.now)
        assert [record.state for record in one.registry.records()] == [WorkerState.PENDING]
        assert one.plan() == ""
        one.registry.not_learned(record.worker, "refused")
        assert (record.error, record.num_attempts) == ("refused", 1)
        one.learn("w0")
        assert record.state is WorkerState.SERVING
        assert (record.error, record.num_attempts) == (None, 0)
        assert one.plan() == "w0"


def test_a_worker_that_is_not_well_tells_its_last_cause() -> None:
    with fleet() as one:
        one.learn("w0")
        worker = WorkerId("w0")
        record = one.registry.record(worker)
        assert worker_view(record).error is None
        for _ in range(3):
            one.registry.probed(worker, "http://w0/health: connection\x1b refused", 1.0)
        assert record.state is WorkerState.UNHEALTHY
        assert "connection" in (worker_view(record).error or "")
        assert "\x1b" not in (worker_view(record).error or "")
        one.registry.probed(worker, "http://w0/health answers 503", 2.0)
        assert worker_view(record).error == "http://w0/health answers 503"
        one.registry.probed(worker, None, 3.0)
        assert (record.state, worker_view(record).error) == (WorkerState.SERVING, None)
        for _ in range(5):
            one.registry.attempt_ended(Rank(worker), OutcomeKind.WORKER_ERROR, 4.0)
        assert worker_view(record).state == "breaker_open"
        told = "5 requests in a row failed: answered with an error of the server (5xx)"
        assert worker_view(record).error == told


def test_workers_without_endpoints_of_their_own_have_the_fleets() -> None:
    fleets, own = NamedEvents("tcp://*:1", topic="{host}", is_bound=True), NamedEvents("tcp://*:2")
    with fleet() as one:
        registry = Registry(one.brains, RegistryLimits(), events=fleets)
        assert registry.add(WorkerId("a"), "http://a", 0.0).events is fleets
        assert registry.add(WorkerId("b"), "http://b", 0.0, own).events is own


def test_names_and_urls_are_taken_once_and_places_are_bounded() -> None:
    with fleet(RegistryLimits(max_workers=2)) as one:
        one.learn("w0")
        for name, url in (("w0", "http://other"), ("other", "http://w0")):
            with pytest.raises(WorkerExistsError):
                one.registry.add(WorkerId(name), url, 0)
        one.learn("w1")
        with pytest.raises(RegistryFullError):
            one.registry.add(WorkerId("w2"), "http://w2", 0)


def test_a_removed_worker_is_forgotten_everywhere() -> None:
    with fleet() as one:
        worker = one.learn("w0", sources=(source(),))
        one.registry.remove(worker)
        assert one.plan() == ""
        assert one.brains.index.rank_states(one.clock.now) == []
        assert one.brains.intake.sources == []
        assert one.registry.model_cards() == []
        for act in (one.registry.remove, one.registry.record):
            with pytest.raises(UnknownWorkerError):
                act(worker)
        one.registry.learned(worker, described(), one.brains.shelf.shelved("m"), 0)
        one.registry.attempt_ended(Rank(worker), OutcomeKind.WORKER_ERROR, 0)
        one.registry.probed(worker, "refused", one.clock.now)
        assert one.plan() == ""


def test_what_is_learned_of_another_url_is_not_believed() -> None:
    with fleet() as one:
        one.registry.add(WorkerId("w0"), "http://moved", one.clock.now)
        one.registry.learned(WorkerId("w0"), described(), one.brains.shelf.shelved("m"), 0)
        assert one.plan() == ""


def test_other_ports_start_the_worker_anew_and_other_names_do_not() -> None:
    with fleet() as one:
        worker = one.learn("w0", sources=(source(port=5557),))
        one.brains.index.set_trust(Rank(worker), Trust.EXACT, one.clock.now)
        one.learn("w0", sources=(source(port=5557),), adapters=("lora",), version="1")
        assert one.brains.index.trust(Rank(worker), one.clock.now) is Trust.EXACT
        assert one.plan("lora") == "w0"
        one.learn("w0", sources=(source(port=6000),))
        assert one.brains.intake.sources == [source(port=6000)]
        assert one.brains.index.trust(Rank(worker), one.clock.now) is Trust.NONE
        assert one.plan("lora") == ""


def test_names_that_change_reach_the_index() -> None:
    """A request under a new alias or adapter finds what the rank holds of it."""
    with fleet() as one:
        worker = one.learn("w0")
        block = BlockStored([1], None, [1, 2, 3, 4], 4)
        under_adapter = BlockStored([2], None, [1, 2, 3, 4], 4, lora_name="lora")
        one.brains.index.apply(Rank(worker), EventBatch(1.0, [block, under_adapter]), 1.0)
        one.learn("w0", aliases=("alias",), adapters=("lora",))
        tokens = pack_tokens([1, 2, 3, 4, 5])
        for name in ("alias", "lora"):
            request = PlanRequest(name, "chat", name, tokens, 0.0)
            found = one.brains.planner.explain(request, one.clock.now)
            assert found.candidates[0].gpu_blocks == 1, name


@pytest.mark.parametrize(
    ("before", "after", "is_anew"),
    [
        ({"version": "0.5.14"}, {"version": "0.5.23"}, True),
        ({"version": "0.5.23"}, {"version": "0.5.14"}, True),
        ({"version": "0.5.23"}, {}, False),
        ({}, {"version": "0.5.23"}, False),
        ({"block_size": 4}, {"block_size": 8}, True),
        ({"block_size": 4}, {"block_size": None}, False),
        ({}, {"engine": EngineKind.VLLM}, True),
        ({}, {"model": "m2"}, True),
        ({}, {"max_model_len": 100}, False),
    ],
)
def test_what_another_description_means(
    before: dict[str, object], after: dict[str, object], is_anew: bool
) -> None:
    described_as = {"engine": EngineKind.SGLANG, "sources": (source(),)}
    with fleet() as one:
        worker = one.learn("w0", **described_as | before)
        one.brains.index.apply(Rank(worker), EventBatch(1.0, []), 1.0, seq=0)
        one.learn("w0", **described_as | after)
        assert one.brains.index.mark(Rank(worker)) == (None if is_anew else 0)


def test_an_engine_brought_up_to_date_is_believed() -> None:
    with fleet() as one:
        worker = one.learn("w0", engine=EngineKind.SGLANG, version="0.5.14")
        one.brains.index.set_trust(Rank(worker), Trust.EXACT, one.clock.now)
        assert one.brains.index.trust(Rank(worker), one.clock.now) is Trust.NONE
        one.learn("w0", engine=EngineKind.SGLANG, version="0.5.23")
        one.brains.index.set_trust(Rank(worker), Trust.EXACT, one.clock.now)
        assert one.brains.index.trust(Rank(worker), one.clock.now) is Trust.EXACT


def test_more_ranks_are_known_to_all() -> None:
    with fleet() as one:
        one.learn("w0", num_ranks=1)
        one.learn("w0", num_ranks=3)
        assert len(one.brains.index.rank_states(one.clock.now)) == 3
        assert len(one.brains.planner.rank_loads(one.clock.now)) == 3


def test_a_draining_worker_gets_nothing_new_and_stays_so_when_learned_again() -> None:
    with fleet() as one:
        worker = one.learn("w0")
        one.learn("w1")
        one.registry.set_draining(worker, is_draining=True)
        one.learn("w0", version="2")
        assert {one.plan() for _ in range(10)} == {"w1"}
        assert one.registry.record(worker).state is WorkerState.DRAINING
        one.registry.set_draining(worker, is_draining=False)
        assert "w0" in {one.plan() for _ in range(30)}


def test_the_log_says_why_a_worker_is_unhealthy_and_that_it_is_well_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "router.registry")
    with fleet(RegistryLimits(health_threshold=3)) as one:
        worker = one.learn("w0")
        caplog.clear()
        for fault in ("slow", "slow", "connection refused", "slow", None, None):
            one.registry.probed(worker, fault, one.clock.now)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "worker w0 is unhealthy: connection refused, 3 probes in a row"),
        ("INFO", "worker w0 is healthy again"),
    ]


def test_failed_probes_in_a_row_exclude_and_one_good_one_restores() -> None:
    with fleet(RegistryLimits(health_threshold=3)) as one:
        worker = one.learn("w0")
        for _ in range(2):
            one.registry.probed(worker, "refused", one.clock.now)
        assert one.plan() == "w0"
        one.registry.probed(worker, "refused", one.clock.now)
        assert one.plan() == ""
        assert one.registry.record(worker).state is WorkerState.UNHEALTHY
        one.registry.probed(worker, None, one.clock.now)
        assert one.plan() == "w0"


def test_the_breaker_excludes_and_lets_the_worker_be_tried_again() -> None:
    breaker = BreakerLimits(num_faults=3, cool_down_s=5, max_cool_down_s=20)
    with fleet(RegistryLimits(breaker=breaker)) as one:
        worker = one.learn("w0")
        for kind in (OutcomeKind.CLIENT_ERROR, OutcomeKind.BUSY) * 10:
            one.registry.attempt_ended(Rank(worker), kind, one.clock.now)
        assert one.plan() == "w0"
        for _ in range(3):
            one.registry.attempt_ended(Rank(worker), OutcomeKind.WORKER_ERROR, one.clock.now)
        assert one.plan() == ""
        one.tick(5)
        assert one.plan() == "w0"
        one.registry.attempt_ended(Rank(worker), OutcomeKind.CONNECT_FAILED, one.clock.now)
        assert one.plan() == ""
        one.tick(10)
        one.registry.attempt_ended(Rank(worker), OutcomeKind.COMPLETED, one.clock.now)
        assert one.plan() == "w0"


def test_events_out_of_reach_are_a_finding_while_the_worker_answers() -> None:
    def kinds(one: TestFleet) -> list[str]:
        return [finding.kind for finding in one.brains.index.findings(one.clock.now)]

    with fleet() as one:
        worker = one.learn("w0", sources=(source(has_replay=True),))
        for seconds in (0.0, 29.0):
            one.tick(seconds)
            assert kinds(one) == []
        one.tick(2.0)
        assert kinds(one) == ["rank_unreachable"]
        one.brains.intake.on_connected(source(has_replay=True), one.clock.now)
        one.tick()
        assert kinds(one) == []
        one.brains.intake.on_disconnected(source(has_replay=True), one.clock.now)
        for _ in range(RegistryLimits().health_threshold):
            one.registry.probed(worker, "refused", one.clock.now)
        one.tick()
        one.tick(31.0)
        assert kinds(one) == []
        one.registry.probed(worker, None, one.clock.now)
        one.tick()
        one.tick(31.0)
        assert kinds(one) == ["rank_unreachable"]


def test_a_sleeping_worker_gets_nothing() -> None:
    with fleet() as one:
        worker = one.learn("w0", is_asleep=True)
        assert one.plan() == ""
        assert one.registry.record(worker).state is WorkerState.SLEEPING
        one.learn("w0")
        assert one.plan() == "w0"


def test_a_source_without_replay_is_heard_as_soon_as_it_is_connected() -> None:
    """Whichever rank speaks by it: here another one than its own."""
    with fleet(RegistryLimits(recovery_s=30)) as one:
        spoken = source()
        one.learn("w0", sources=(spoken,))
        one.tick(1)
        assert not one.registry.readiness().is_ready
        one.brains.intake.on_connected(spoken, one.clock.now)
        frames = live_frames(LiveMessage(b"", 0, encode_batch(EventBatch(1.0, [], dp_rank=1))))
        one.brains.intake.on_live(spoken, frames, one.clock.now)
        one.tick(1)
        assert one.registry.readiness().is_ready


def test_ready_waits_for_enough_workers_and_for_their_indexes() -> None:
    with fleet(RegistryLimits(min_ready=2, recovery_s=30)) as one:
        worker = one.learn("w0", sources=(source(has_replay=True),))
        one.learn("w1")
        one.tick()
        assert not one.registry.readiness().is_ready
        one.brains.index.set_trust(Rank(worker), Trust.REBUILDING, one.clock.now)
        one.tick(1)
        assert not one.registry.readiness().is_ready
        one.brains.index.set_trust(Rank(worker), Trust.EXACT, one.clock.now)
        one.tick(1)
        assert one.registry.readiness().is_ready
        one.brains.index.set_trust(Rank(worker), Trust.REBUILDING, one.clock.now)
        one.tick(1)
        assert one.registry.readiness().is_ready
        one.learn("w2", sources=(source("w2", 7000, has_replay=True),))
        one.tick(1)
        assert one.registry.readiness().is_ready
        one.registry.remove(WorkerId("w1"))
        one.registry.remove(WorkerId("w2"))
        assert not one.registry.readiness().is_ready
        one.learn("w1")
        assert one.registry.readiness().is_ready
        one.registry.is_draining = True
        assert not one.registry.readiness().is_ready


def test_a_stuck_replay_delays_readiness_no_longer_than_the_bound() -> None:
    with fleet(RegistryLimits(min_ready=1, recovery_s=30)) as one:
        one.learn("w0", sources=(source(has_replay=True),))
        one.tick(29)
        assert not one.registry.readiness().is_ready
        one.tick(1)
        assert one.registry.readiness().is_ready


def test_a_worker_that_changes_all_the_time_delays_readiness_no_longer_than_the_bound() -> None:
    with fleet(RegistryLimits(min_ready=1, recovery_s=30)) as one:
        one.learn("w0")
        for port in range(6000, 6029):
            one.learn("w1", sources=(source("w1", port, has_replay=True),))
            one.tick(1)
            assert not one.registry.readiness().is_ready
        one.tick(1)
        assert one.registry.readiness().is_ready


def test_models_are_unknown_only_once_every_worker_had_its_time() -> None:
    with fleet(RegistryLimits(recovery_s=30)) as one:
        one.learn("w0")
        assert one.registry.is_settled()
        one.registry.add(WorkerId("dead"), "http://dead", one.clock.now)
        one.tick(29)
        assert not one.registry.is_settled()
        one.tick(1)
        assert one.registry.is_settled()


def test_model_cards_are_merged_by_name() -> None:
    with fleet() as one:
        one.learn("w0")
        one.learn("w1", model="n")
        one.learn("w2")
        assert [(card["id"], card["root"]) for card in one.registry.model_cards()] == [
            ("m", "w0"),
            ("n", "w1"),
        ]


def test_what_is_about_no_model_may_go_to_any_worker() -> None:
    with fleet() as one:
        one.learn("w0")
        one.learn("w1", model="n")
        assert one.plan(None) == ""
        assert {one.plan(None, api="other") for _ in range(30)} == {"w0", "w1"}
