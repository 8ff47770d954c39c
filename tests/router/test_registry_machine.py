"""Workers that come, change, fail and go in any order: records, planner and index agree."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from protocol import Rank, WorkerId
from router.breaker import BreakerLimits
from router.registry import RegistryLimits
from scoring import OutcomeKind
from tests.router.brains import fleet, source

NAMES = st.sampled_from(["w0", "w1", "w2"])


class RegistryMachine(RuleBasedStateMachine):
    """Anything may happen in any order; records and planner always agree."""

    def __init__(self) -> None:
        super().__init__()
        self._context = fleet(RegistryLimits(breaker=BreakerLimits(2, 1, 4)))
        self.one = self._context.__enter__()

    def teardown(self) -> None:
        self._context.__exit__(None, None, None)

    @rule(name=NAMES, ranks=st.integers(1, 3), port=st.sampled_from([None, 5557, 6000]))
    def learn(self, name: str, ranks: int, port: int | None) -> None:
        sources = () if port is None else (source(name, port),)
        self.one.learn(name, num_ranks=ranks, sources=sources)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if self.one.registry.find(WorkerId(name)) is not None:
            self.one.registry.remove(WorkerId(name))

    @rule(name=NAMES, is_ok=st.booleans())
    def probe(self, name: str, is_ok: bool) -> None:
        self.one.registry.probed(WorkerId(name), None if is_ok else "refused", self.one.clock.now)

    @rule(name=NAMES, kind=st.sampled_from(OutcomeKind))
    def attempt(self, name: str, kind: OutcomeKind) -> None:
        self.one.registry.attempt_ended(Rank(WorkerId(name)), kind, self.one.clock.now)

    @rule(name=NAMES, is_draining=st.booleans())
    def drain(self, name: str, is_draining: bool) -> None:
        if self.one.registry.find(WorkerId(name)) is not None:
            self.one.registry.set_draining(WorkerId(name), is_draining=is_draining)

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0]))
    def tick(self, seconds: float) -> None:
        self.one.tick(seconds)

    @invariant()
    def agrees(self) -> None:
        self.one.check()


def test_the_registry_under_anything() -> None:
    run_state_machine_as_test(
        RegistryMachine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
    )
