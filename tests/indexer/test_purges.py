"""What a purge dropped, and when a replay from 0 is asked for to bring it back."""

import pytest

from indexer import Intake
from indexer.actions import ForgetReason, RequestReplay
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockStored,
    EventBatch,
    EventSource,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    encode_batch,
    live_frames,
    replay_frames,
)
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank, worker_spec

CONTRADICT, CLEAR = "cached_tokens_contradict", "clears_missing"


def tokens_of(i: int) -> list[int]:
    return [*blocks(1_000 * i, 8), 7]


def stores(i: int) -> BlockStored:
    return BlockStored(names(100 * i, 8), None, tokens_of(i)[: 8 * SIZE], SIZE, "GPU")


def warm(*workers: str) -> SmallFleet:
    fleet = SmallFleet(*(workers or ("w",)))
    for i in range(8):
        fleet.apply("w", stores(i))
    return fleet


def contradict(fleet: SmallFleet, first: int = 0) -> None:
    """Of three prompts only a part is reused."""
    for i in range(first, first + 3):
        fleet.serve("w", prompt(tokens_of(i)), cached_tokens=2 * SIZE)
        fleet.wait(3.0)


def wants_rebuild(fleet: SmallFleet) -> bool:
    return fleet.index.wants_rebuild(rank("w"), fleet.now)


def rebuild(fleet: SmallFleet) -> None:
    """As a full replay does."""
    fleet.index.forget(rank("w"), ForgetReason.REBUILT, fleet.now)
    fleet.index.set_trust(rank("w"), Trust.EXACT, fleet.now)
    for i in range(8):
        fleet.apply("w", stores(i))
    fleet.wait(1.0)


def test_a_purged_rank_wants_to_be_rebuilt_once() -> None:
    fleet = warm()
    assert not wants_rebuild(fleet)
    contradict(fleet)
    assert wants_rebuild(fleet)
    assert CONTRADICT in fleet.findings()
    assert fleet.match("w", prompt(tokens_of(7))).gpu_blocks == 0
    rebuild(fleet)
    assert not wants_rebuild(fleet)
    assert (fleet.match("w", prompt(tokens_of(7))).gpu_blocks, fleet.trust("w")) == (8, Trust.EXACT)
    assert CONTRADICT not in fleet.findings()


def test_a_rank_that_contradicts_after_a_rebuild_stays_purged() -> None:
    fleet = warm()
    contradict(fleet)
    rebuild(fleet)
    contradict(fleet)
    assert not wants_rebuild(fleet)
    fleet.wait(599.0)
    assert (wants_rebuild(fleet), fleet.trust("w")) == (False, Trust.STALE)
    assert fleet.findings()[CONTRADICT]["purges"] == 2
    fleet.wait(600.0)
    assert not wants_rebuild(fleet)


def test_after_a_report_that_agrees_it_is_rebuilt_again_in_time() -> None:
    fleet = warm()
    contradict(fleet)
    rebuild(fleet)
    contradict(fleet)
    again = prompt(tokens_of(0))
    fleet.serve("w", again)
    fleet.serve("w", again, cached_tokens=8 * SIZE)
    assert (wants_rebuild(fleet), fleet.trust("w")) == (False, Trust.JOINED)
    fleet.wait(IndexLimits().rebuild_every_s)
    assert wants_rebuild(fleet)


@pytest.mark.parametrize("is_storing", [True, False])
def test_after_a_silent_clear_events_of_the_past_are_wanted_only_if_none_came_since(
    is_storing: bool,
) -> None:
    """Where nothing is stored it may be the events that are silent; else they tell of what is gone."""
    fleet = warm()
    for i in range(3):
        fleet.serve("w", prompt(tokens_of(i)), 0, [stores(i)] if is_storing else [])
        fleet.wait(3.0)
    assert fleet.findings().keys() == {CLEAR}
    assert wants_rebuild(fleet) is not is_storing
    if is_storing:
        contradict(fleet, first=0)
        assert (fleet.state("w").purges, wants_rebuild(fleet)) == (2, False)


@pytest.mark.parametrize("how", ["cleared", "restarted"])
def test_nothing_is_to_be_brought_back_to_a_rank_that_is_empty(how: str) -> None:
    fleet = warm()
    contradict(fleet)
    if how == "cleared":
        fleet.apply("w", AllBlocksCleared())
    else:
        fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    assert not wants_rebuild(fleet)
    assert CONTRADICT not in fleet.findings()
    for i in range(8):
        fleet.apply("w", stores(i))
    fleet.wait(1.0)
    contradict(fleet)
    assert wants_rebuild(fleet)


def test_a_rank_that_is_not_known_wants_nothing() -> None:
    fleet = SmallFleet("w")
    assert not fleet.index.wants_rebuild(rank("v"), 0.0)


class Publisher:
    """Its past, an intake that listens, and the fleet behind it."""

    def __init__(self) -> None:
        self.fleet = warm()
        spec = worker_spec("w")
        self.source: EventSource = spec.sources[0]
        self.intake = Intake(self.fleet.index)
        self.intake.add_source(self.source, self.fleet.now)
        self.past = [encode_batch(EventBatch(float(i), [stores(i)], 0)) for i in range(8)]
        self.intake.on_connected(self.source, self.fleet.now)
        self.replay(0)

    def replay(self, first_seq: int) -> None:
        for seq in range(first_seq, len(self.past)):
            frames = replay_frames(b"", ReplayReply(seq, self.past[seq]))
            self.intake.on_replay(self.source, frames, self.fleet.now)
        self.intake.on_replay(self.source, replay_frames(b"", ReplayEnd()), self.fleet.now)

    def tick(self) -> list[RequestReplay]:
        self.fleet.wait(0.5)
        live = LiveMessage(b"", len(self.past), encode_batch(EventBatch(0.0, [], 0)))
        asked = [request for _, request in self.intake.on_tick(self.fleet.now)]
        if not asked:  # it is not silent
            self.past.append(live.payload)
            self.intake.on_live(self.source, live_frames(live), self.fleet.now)
        return asked


def test_the_publisher_is_asked_for_all_and_all_is_credited() -> None:
    publisher = Publisher()
    fleet, hot = publisher.fleet, prompt(tokens_of(7))
    assert fleet.match("w", hot).gpu_blocks == 8
    contradict(fleet)
    assert fleet.match("w", hot).gpu_blocks == 0
    asked: list[RequestReplay] = []
    for _ in range(40):
        requests = publisher.tick()
        for request in requests:
            publisher.replay(request.first_seq)
        asked += requests
    assert [request.first_seq for request in asked].count(0) == 1
    assert (fleet.match("w", hot).gpu_blocks, fleet.trust("w")) == (8, Trust.EXACT)
