"""A real brain without its tasks: index, planner, streams and shelf, as the registry drives them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import zmq

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.subscriber import EventSubscriber
from protocol import EventSource, Rank, WorkerId, WorkerSpec
from router.discovery import Discovered
from router.outages import Outages
from router.registry import Brains, Registry, RegistryLimits
from router.shelf import PromptShelf, Rung, Shelved
from scoring import Planner, PlanRequest, PolicyName

NO_TOKENIZER = Shelved(Rung.NONE, detail="none in this test")


@dataclass
class Clock:
    """Time that stands still until it is moved."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now


@dataclass
class TestFleet:
    """A registry over a real brain."""

    __test__ = False

    clock: Clock
    brains: Brains
    registry: Registry
    outages: Outages
    num_plans: int = field(default=0)

    def learn(self, name: str = "w0", **changes: object) -> WorkerId:
        """Add a worker, if it is new, and learn it as described."""
        worker = WorkerId(name)
        if self.registry.find(worker) is None:
            self.registry.add(worker, f"http://{name}", self.clock.now)
        found = described(name, **changes)
        self.registry.learned(worker, found, NO_TOKENIZER, self.clock.now)
        return worker

    def plan(self, model: str | None = "m", api: str = "chat") -> str:
        """Where a request would go."""
        self.num_plans += 1
        request = PlanRequest(f"r{self.num_plans}", api, model, None, 0.0)
        decision = self.brains.planner.explain(request, self.clock.now)
        return decision.chosen.worker if decision.chosen else ""

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        self.clock.now += seconds
        self.registry.tick(self.clock.now)

    def check(self) -> None:
        """Everything agrees, and no fault of the index was survived."""
        assert not any(self.brains.planner.counters().index_failures.values())
        self.registry.check()
        self.brains.planner.check()
        self.brains.index.check()
        self.brains.intake.check()


def described(name: str = "w0", **changes: object) -> Discovered:
    """What a worker says of itself."""
    is_asleep = changes.pop("is_asleep", False) is True
    fields: dict[str, object] = {
        "worker": WorkerId(name),
        "url": f"http://{name}",
        "model": "m",
        "block_size": 4,
    }
    spec = WorkerSpec(**(fields | changes))  # type: ignore[arg-type]
    card = {"id": spec.model, "object": "model", "root": name}
    return Discovered(spec, (card,), is_asleep)


def source(name: str = "w0", port: int = 5557, *, has_replay: bool = False) -> EventSource:
    """Where a worker's events would be heard."""
    replay = f"tcp://127.0.0.1:{port + 100}" if has_replay else None
    return EventSource(Rank(WorkerId(name)), f"tcp://127.0.0.1:{port}", replay)


@contextmanager
def fleet(
    limits: RegistryLimits | None = None, policy: PolicyName = PolicyName.COST
) -> Iterator[TestFleet]:
    """A fleet without workers."""
    with zmq.Context() as context:
        clock, index = Clock(), FleetIndex()
        intake = Intake(index)
        brains = Brains(
            index,
            Planner(index, policy=policy, rng=Random(0)),
            intake,
            EventSubscriber(intake, clock, context),
            PromptShelf({}),
        )
        outages = Outages()
        registry = Registry(brains, limits or RegistryLimits(), outages)
        found = TestFleet(clock, brains, registry, outages)
        yield found
        found.check()
