"""Each finding by causing it; none of them on a healthy fleet."""

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from indexer.actions import ForgetReason
from indexer.findings import FindingKind
from indexer.trust import Trust
from protocol import (
    BlockStored,
    EngineKind,
    EventSource,
)
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank, worker_spec
from tests.indexer.toy_engine import SIZE as TOY_SIZE
from tests.indexer.toy_engine import Path, ToyEngine, tokens_of

HOST = "host_stores_unannounced"
A = names(0, 8)
TOKENS = blocks(0, 8)


# Host stores unannounced: a fleet of engines


class ToyFleet:
    """250 requests on three engines, conversations among them; every step of each at its own time.

    Attributes:
        found_at: number of requests decided when the finding came; None if it never did.
    """

    def __init__(self, seed: int, *, announces_refills: bool) -> None:
        workers = [f"w{i}" for i in range(3)]
        self.rng = random.Random(seed)
        self.fleet = SmallFleet(*(worker_spec(name, block_size=TOY_SIZE) for name in workers))
        storage: set[Path] = set()
        self.engines = {
            name: ToyEngine(storage, 60, 90, announces_refills=announces_refills)
            for name in workers
        }
        self.decided = 0
        self.found_at: int | None = None
        self._seen: list[Path] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def num_refilled(self) -> int:
        return sum(engine.refilled for engine in self.engines.values())

    def run(self) -> None:
        for i in range(250):
            self._at(i * 0.15, partial(self._start_any, (i, i + 1, i + 2, i + 3)))
        while self._agenda:
            self.fleet.now, _, step = heapq.heappop(self._agenda)
            step()
            if self.found_at is None and HOST in self.fleet.findings():
                self.found_at = self.decided
        self.fleet.index.check()

    def _at(self, delay: float, step: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.fleet.now + delay, next(self._order), step))

    def _start_any(self, fresh: Path) -> None:
        is_known = self._seen and self.rng.random() < 0.5
        self._start(self.rng.choice(self._seen) if is_known else fresh)

    def _start(self, path: Path) -> None:
        """Plan a request; what becomes of it takes place later, events later still."""
        name = self.rng.choice(sorted(self.engines))
        request = prompt([*tokens_of(path), 1])
        at_decision, decided_at = self.fleet.match(name, request), self.fleet.now
        self.fleet.index.predict(rank(name), request, decided_at)
        self.decided += 1
        self._seen.append(path)
        engine = self.engines[name]
        answer = tuple(self.rng.randrange(1_000) for _ in range(self.rng.randrange(3)))
        reused: list[int] = []

        def first_token() -> None:
            self.fleet.index.observe(rank(name), request, self.fleet.now)

        def report() -> None:
            self.fleet.index.report(
                rank(name), request, reused[0] * TOY_SIZE, at_decision, decided_at, self.fleet.now
            )
            if self.rng.random() < 0.5 and len(path) < 12:
                self._at(0.001, partial(self._start, (*path, *answer, self.rng.randrange(1_000))))

        admitted, begun, ended = sorted(self.rng.uniform(0.0, 0.4) for _ in range(3))
        self._at(admitted, lambda: reused.append(engine.admit(path)))
        self._at(admitted + 0.05, partial(self._flush, name))
        self._at(begun, first_token)
        self._at(ended, partial(engine.finish, path, answer))
        self._at(ended + 0.001, report)
        self._at(ended + self.rng.uniform(0.0, 0.5), partial(self._flush, name))

    def _flush(self, name: str) -> None:
        batch = self.engines[name].flush()
        if batch is not None:
            self.fleet.index.apply(rank(name), batch, self.fleet.now)


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_fleet_has_no_finding(seed: int) -> None:
    toy = ToyFleet(seed, announces_refills=True)
    toy.run()
    assert toy.num_refilled > 200
    assert toy.found_at is None
    assert toy.fleet.findings() == {}


@pytest.mark.parametrize("seed", range(3))
def test_silent_refills_are_found(seed: int) -> None:
    toy = ToyFleet(seed, announces_refills=False)
    toy.run()
    assert toy.num_refilled > 200
    assert toy.found_at is not None
    assert toy.found_at < 50
    assert toy.fleet.findings().keys() == {HOST}


# The others


def test_events_missing() -> None:
    fleet = SmallFleet("w", trust=Trust.NONE)
    for i in range(3):
        assert "events_missing" not in fleet.findings()
        fleet.serve("w", prompt(blocks(1_000 * i, 4)), 0)
    fleet.wait(11.0)
    evidence = fleet.findings()["events_missing"]
    assert (evidence["batches_heard"], evidence["unanswered_requests"]) == (0, 3)
    fleet.apply("w", BlockStored(A, None, TOKENS, SIZE, "GPU"))
    assert fleet.findings() == {}


def test_where_the_router_listens_it_says_so() -> None:
    listened = EventSource(rank("w"), "tcp://*:5557", is_bound=True)
    fleet = SmallFleet(worker_spec("w", sources=(listened,)), trust=Trust.NONE)
    for i in range(3):
        fleet.serve("w", prompt(blocks(1_000 * i, 4)), 0)
    fleet.wait(11.0)
    evidence = fleet.findings()["events_missing"]
    assert evidence["router_listens_at"] == "tcp://*:5557"


def test_a_rank_without_an_event_source_is_named_before_it_serves() -> None:
    fleet = SmallFleet(worker_spec("w", sources=()))
    assert fleet.findings()["events_missing"] == {
        "num_ranks": 1,
        "served_requests": 0,
        "event_sources": 0,
    }


def test_events_that_ceased_are_missing_too() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A, TOKENS)
    fleet.wait(5.0)
    for i in range(3):
        fleet.serve("w", prompt(blocks(1_000 * (i + 1), 4)), 0)
    assert fleet.findings() == {}
    fleet.wait(61.0)
    assert fleet.findings()["events_missing"]["batches_heard"] == 1


def test_engines_that_cannot_be_believed_lack_events() -> None:
    fleet = SmallFleet(worker_spec("w", engine=EngineKind.SGLANG, version="0.5.9"))
    for i in range(3):
        fleet.serve("w", prompt(blocks(1_000 * i, 4)), 0, [BlockStored(A, None, TOKENS, 4, "GPU")])
    assert fleet.findings()["events_missing"]["version"] == "0.5.9"


def test_prompts_shorter_than_a_block_owe_no_event() -> None:
    fleet = SmallFleet("w")
    for _ in range(5):
        fleet.serve("w", prompt([1, 2, 3]), 0)
    fleet.wait(100.0)
    assert fleet.findings() == {}


def test_rank_unreachable() -> None:
    fleet = SmallFleet("w", "v")
    for _ in range(2):
        for seconds, is_found in ((0.0, False), (29.0, False), (2.0, True)):
            fleet.wait(seconds)
            fleet.index.set_connected(rank("w"), fleet.now, is_connected=False)
            fleet.index.set_connected(rank("v"), fleet.now, is_connected=True)
            assert ("rank_unreachable" in fleet.findings()) is is_found
        (finding,) = fleet.index.findings(fleet.now)
        assert (finding.kind, finding.ranks) == (FindingKind.RANK_UNREACHABLE, (rank("w"),))
        assert finding.evidence == {
            "num_ranks": 1,
            "unreachable_s": 31.0,
            "endpoint": "tcp://w:5557",
        }
        fleet.index.set_connected(rank("w"), fleet.now, is_connected=True)
        assert fleet.findings() == {}


def test_a_rank_that_is_to_connect_and_does_not_is_told_apart() -> None:
    listened = EventSource(rank("w"), "tcp://*:5557", is_bound=True)
    fleet = SmallFleet(worker_spec("w", sources=(listened,)))
    fleet.index.set_connected(rank("w"), fleet.now, is_connected=False)
    fleet.wait(31.0)
    assert fleet.findings()["rank_unreachable"]["router_listens_at"] == "tcp://*:5557"


def test_a_rank_whose_worker_is_down_is_not_unreachable() -> None:
    fleet = SmallFleet("w")
    fleet.index.set_connected(rank("w"), fleet.now, is_connected=False)
    fleet.wait(20.0)
    fleet.index.set_connected(rank("w"), fleet.now, is_connected=None)
    fleet.wait(20.0)
    fleet.index.set_connected(rank("w"), fleet.now, is_connected=False)
    fleet.wait(20.0)
    assert fleet.findings() == {}
    fleet.index.set_connected(rank("nobody"), fleet.now, is_connected=False)


def test_replay_off() -> None:
    source = EventSource(rank("w"), "tcp://w:5557")
    fleet = SmallFleet(worker_spec("w", sources=(source,)), "v")
    (finding,) = fleet.index.findings(fleet.now)
    assert (finding.kind, finding.ranks) == (FindingKind.REPLAY_OFF, (rank("w"),))
    assert finding.evidence["endpoint"] == "tcp://w:5557"


def test_loss_unrepaired() -> None:
    fleet = SmallFleet("w")
    fleet.store("w", A, TOKENS)
    fleet.index.record_loss(rank("w"), fleet.now)
    assert fleet.findings()["loss_unrepaired"]["doubtful_claims"] == 8
    fleet.wait(599.0)
    assert "loss_unrepaired" in fleet.findings()
    fleet.wait(2.0)
    assert fleet.findings() == {}


def serve_with_other_tokens(fleet: SmallFleet, i: int) -> None:
    """The engine stores blocks, but not those of the prompt as the router sees it."""
    stores = [BlockStored(names(100 * i, 4), None, blocks(50_000 + 100 * i, 4), SIZE, "GPU")]
    fleet.serve("w", prompt(blocks(1_000 * i, 4)), 0, stores)


def test_parity_broken() -> None:
    fleet = SmallFleet("w")
    for i in range(1, 5):
        serve_with_other_tokens(fleet, i)
        assert fleet.findings() == {}
    fleet.wait(11.0)
    assert fleet.findings()["parity_broken"]["unconfirmed_requests"] == 3
    tokens = blocks(9_000, 4)
    fleet.serve("w", prompt(tokens), 0, [BlockStored(names(900, 4), None, tokens, SIZE, "GPU")])
    assert fleet.findings() == {}


def test_parity_holds_while_any_request_is_confirmed() -> None:
    fleet = SmallFleet("w")
    for i in range(1, 10):
        serve_with_other_tokens(fleet, i)
        if i % 3 == 0:
            tokens = blocks(90_000 + 100 * i, 4)
            fleet.store("w", names(9_000 + 10 * i, 4), tokens)
            fresh = blocks(70_000 + 100 * i, 4)
            stores = [BlockStored(names(7_000 + 10 * i, 4), None, fresh, SIZE, "GPU")]
            fleet.serve("w", prompt(fresh), 0, stores)
    fleet.wait(11.0)
    assert fleet.findings() == {}


def test_block_size_disagrees() -> None:
    fleet = SmallFleet(worker_spec("w", block_size=16), worker_spec("v", block_size=None))
    for worker in ("w", "v"):
        fleet.store(worker, A, TOKENS)
    (finding,) = fleet.index.findings(fleet.now)
    assert (finding.kind, finding.ranks) == (FindingKind.BLOCK_SIZE_DISAGREES, (rank("w"),))


def test_since_is_kept_while_a_finding_lasts() -> None:
    fleet = SmallFleet(worker_spec("w", block_size=16))
    fleet.store("w", A, TOKENS)
    fleet.wait(1.0)
    (first,) = fleet.index.findings(fleet.now)
    fleet.wait(100.0)
    (second,) = fleet.index.findings(fleet.now)
    assert first.since == second.since == 101.0
    fleet.index.forget(rank("w"), ForgetReason.RESTARTED, fleet.now)
    assert fleet.index.findings(fleet.now) == []
