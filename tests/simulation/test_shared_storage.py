"""Workers with one storage directory, from what they say of themselves to the fetch: real engines, real brain.

worker ─server_info─▶ discovery ─▶ pool         A computes and writes through ─▶ events ─▶ index
                                                B is planned, fetches, and reports what it reused
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from indexer import FleetIndex
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import EventBatch, Rank, WorkerId, pack_tokens
from router.discovery import WorkerAnswers, describe_worker
from scoring import Outcome, OutcomeKind, Planner, PlanRequest, PolicyName
from scoring.decision import Candidate
from tests.worker.virtual_time import SAMPLER, Driver
from worker.config import WorkerConfig
from worker.engine import Engine
from worker.engine_settings import Flush
from worker.request import Usage
from worker.server_info import WorkerIdentity
from worker.storage import DirectoryStorage, Storage

PAGE = 64
PROMPT = tuple(range(1, 1 + 24 * PAGE + 10))
MODEL = "m"


@dataclass
class Fleet:
    """Workers by name over one index and planner; virtual time.

    Attributes:
        hears_first: events come before the answer's end.
    """

    rules: StorageRules
    hears_first: bool = True
    now: float = 100.0
    drivers: dict[WorkerId, Driver] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = FleetIndex(storage=self.rules)
        self.planner = Planner(self.index, policy=PolicyName.COST, rng=Random(1))

    def start(self, name: str, directory: Path, **changes: object) -> None:
        """A worker as it is learned from its own description."""
        config = WorkerConfig.model_validate(
            {
                "model_name": MODEL,
                "page_size": PAGE,
                "gpu_tokens": 4_096,
                "host_tokens": 8_192,
                "storage": f"dir:{directory}",
                "prefetch_policy": "wait_complete",
                **changes,
            }
        )
        storage: Storage = DirectoryStorage(directory)
        worker = WorkerId(name)
        info = WorkerIdentity(config, Path("/tokenizer"), None, None, 0).server_info()
        answers = WorkerAnswers(server_info=info)
        spec = describe_worker(worker, f"http://127.0.0.1/{name}", answers).spec
        self.drivers[worker] = Driver(Engine(config.engine_settings(), SAMPLER, storage), self.now)
        self.index.add_worker(spec, self.now)
        self.index.set_trust(Rank(worker), Trust.EXACT, self.now)
        self.planner.add_worker(spec)

    def candidates(self, prompt: tuple[int, ...] = PROMPT) -> dict[str, Candidate]:
        decision = self.planner.explain(self._request(prompt), self.now)
        return {one.worker: one for one in decision.candidates}

    def serve(self, prompt: tuple[int, ...] = PROMPT) -> tuple[str, Candidate, Usage]:
        """One request to the end: where it went, as what it was weighed, what the engine reused."""
        plan = self.planner.plan(self._request(prompt), self.now)
        driver = self.drivers[plan.rank.worker]
        driver.now = self.now
        usage = driver.serve(prompt, 2)
        self.now = max(self.now, driver.now)
        flushes, driver.flushes = driver.flushes, []
        if self.hears_first:
            self._hear(plan.rank, flushes)
        self.planner.first_byte(plan.plan_id, self.now)
        outcome = Outcome(OutcomeKind.COMPLETED, len(prompt), usage.cached_tokens, 2)
        self.planner.finish(plan.plan_id, outcome, self.now)
        if not self.hears_first:
            self._hear(plan.rank, flushes)
        self.index.check()
        return plan.rank.worker, plan.decision.candidates[0], usage

    def drain(self, name: str, *, is_draining: bool = True) -> None:
        self.planner.set_draining(WorkerId(name), is_draining=is_draining)

    def _hear(self, rank: Rank, flushes: list[Flush]) -> None:
        for flush in flushes:
            self.index.apply(rank, EventBatch(flush.at, flush.events), self.now)

    def _request(self, prompt: tuple[int, ...]) -> PlanRequest:
        return PlanRequest("r", "generate", MODEL, pack_tokens(prompt), self.now)


@pytest.mark.parametrize("infers", [True, False])
def test_a_prefix_that_another_worker_stored_is_credited_where_inference_is_on(
    tmp_path: Path, infers: bool
) -> None:
    fleet = Fleet(StorageRules(infers=infers))
    fleet.start("a", tmp_path)
    assert fleet.serve()[2].cached_tokens == 0
    fleet.start("b", tmp_path)
    shown = fleet.candidates()["b"]
    assert (shown.storage_blocks, shown.storage_source) == (
        (24, StorageSource.INFERRED) if infers else (0, None)
    )
    assert (shown.terms_ms["fetch"] > 0) is infers
    fleet.drain("a")
    worker, chosen, usage = fleet.serve()
    assert worker == "b"
    assert chosen.matched_tokens == (24 * PAGE if infers else 0)
    assert usage.cached_storage_tokens == 24 * PAGE  # it is there, whatever the router knows
    (pool,) = fleet.index.pool_states()
    assert pool.blocks[StorageSource.INFERRED] == (24 if infers else 0)
    assert pool.contradicted == 0
    assert fleet.candidates()["b"].gpu_blocks == 24  # what was fetched is announced from there on


@pytest.mark.parametrize("hears_first", [True, False])
def test_storage_that_was_emptied_is_noticed_with_the_first_report(
    tmp_path: Path, hears_first: bool
) -> None:
    fleet = Fleet(StorageRules(infers=True), hears_first=hears_first)
    fleet.start("a", tmp_path)
    fleet.serve()
    for name in "bc":
        fleet.start(name, tmp_path)
    fleet.drain("a")
    for page in tmp_path.iterdir():
        if page.name != "aside":
            shutil.rmtree(page)
    worker, chosen, usage = fleet.serve()
    assert (chosen.storage_blocks, usage.cached_tokens) == (24, 0)
    (pool,) = fleet.index.pool_states()
    assert pool.contradicted == (0 if hears_first else 24)
    (other,) = {"b", "c"} - {worker}
    fleet.drain(worker)
    assert fleet.candidates()[other].storage_blocks == 24  # written anew: that is true, and stays
    worker, _, usage = fleet.serve()
    assert (worker, usage.cached_storage_tokens) == (other, 24 * PAGE)


def test_what_is_too_short_for_the_engine_is_neither_fetched_nor_priced(tmp_path: Path) -> None:
    fleet = Fleet(StorageRules(infers=True))
    short = PROMPT[: 3 * PAGE + 5]
    fleet.start("a", tmp_path)
    fleet.serve(short)
    fleet.start("b", tmp_path)
    fleet.start("eager", tmp_path, prefetch_threshold=64)
    shown = fleet.candidates(short)
    assert shown["b"].storage_blocks == shown["eager"].storage_blocks == 3
    assert (shown["b"].terms_ms["fetch"], shown["eager"].terms_ms["fetch"] > 0) == (0.0, True)
    fleet.drain("a")
    worker, _, usage = fleet.serve(short)
    assert (worker, usage.cached_storage_tokens) == ("eager", 3 * PAGE)
    fleet.drain("eager")
    worker, _, usage = fleet.serve(short)
    assert (worker, usage.cached_tokens) == ("b", 0)
    assert fleet.index.pool_states()[0].contradicted == 0


def test_a_worker_without_the_directory_is_credited_with_nothing(tmp_path: Path) -> None:
    fleet = Fleet(StorageRules(infers=True))
    fleet.start("a", tmp_path / "one")
    fleet.serve()
    fleet.start("b", tmp_path / "two")
    fleet.start("c", tmp_path / "one", page_size=32)
    shown = fleet.candidates()
    assert shown["b"].matched_tokens == shown["c"].matched_tokens == 0
    assert len(fleet.index.pool_states()) == 3


def test_a_storage_page_that_left_the_host_is_still_in_the_pool(tmp_path: Path) -> None:
    """The credit outlives GPU and host copies: that is what storage is for."""
    fleet = Fleet(StorageRules(infers=True))
    fleet.start("a", tmp_path, gpu_tokens=2_048, host_tokens=4_096)
    fleet.serve()
    for number in range(2, 8):
        fleet.serve(tuple(number * 10_000 + token for token in PROMPT))
    shown = fleet.candidates()["a"]
    assert shown.gpu_blocks + shown.host_pinned_blocks < 24
    assert shown.matched_tokens == 24 * PAGE
    _, chosen, usage = fleet.serve()
    assert chosen.storage_blocks > 0
    assert usage.cached_storage_tokens > 0
