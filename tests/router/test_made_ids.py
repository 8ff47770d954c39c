"""Who made what: remembered while it is used and while there is room."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol import WorkerId
from router.kept_metrics import kept_metrics
from router.made_ids import Lost, MadeIdLimits, MadeIds

A, B = WorkerId("a"), WorkerId("b")


def test_an_id_is_its_last_makers() -> None:
    made = MadeIds()
    assert made.maker("r", 0.0) is None
    made.note("r", A, 0.0)
    assert made.maker("r", 1.0) == A
    made.note("r", B, 2.0)
    assert made.maker("r", 3.0) == B
    assert len(made) == 1


def test_use_keeps_an_id() -> None:
    made = MadeIds(MadeIdLimits(max_ids=2, max_idle_s=10))
    made.note("used", A, 0.0)
    made.note("unused", A, 1.0)
    assert made.maker("used", 2.0) == A
    made.note("new", A, 3.0)
    assert made.maker("unused", 4.0) is None
    assert made.maker("used", 12.0) == A
    assert made.maker("new", 13.1) is None
    assert made.lost == {Lost.EVICTED: 1, Lost.IDLE: 1, Lost.UNREADABLE: 0}


def test_idle_ids_make_room_when_others_come() -> None:
    made = MadeIds(MadeIdLimits(max_idle_s=10))
    for number in range(5):
        made.note(f"r{number}", A, float(number))
    made.note("late", A, 13.5)
    assert len(made) == 2
    assert made.lost[Lost.IDLE] == 4


class Machine(RuleBasedStateMachine):
    """Against a dict that knows when each id was used last."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = MadeIdLimits(max_ids=3, max_idle_s=5)
        self.made = MadeIds(self.limits)
        self.known: dict[str, tuple[WorkerId, float]] = {}
        self.now = 0.0

    @rule(seconds=st.integers(0, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(made_id=st.sampled_from("pqrst"), worker=st.sampled_from([A, B]))
    def note(self, made_id: str, worker: WorkerId) -> None:
        self.made.note(made_id, worker, self.now)
        self.known.pop(made_id, None)
        self.known[made_id] = worker, self.now
        self._forget()
        while len(self.known) > self.limits.max_ids:
            del self.known[next(iter(self.known))]

    @rule(made_id=st.sampled_from("pqrst"))
    def ask(self, made_id: str) -> None:
        self._forget()
        known = self.known.pop(made_id, None)
        assert self.made.maker(made_id, self.now) == (None if known is None else known[0])
        if known is not None:
            self.known[made_id] = known[0], self.now

    def _forget(self) -> None:
        self.known = {
            made_id: (worker, at)
            for made_id, (worker, at) in self.known.items()
            if self.now - at <= self.limits.max_idle_s
        }

    @invariant()
    def sound(self) -> None:
        self.made.check()


TestMachine = Machine.TestCase


def test_what_is_shown_of_them() -> None:
    made = MadeIds()
    made.note("r", A, 0.0)
    made.lost[Lost.UNREADABLE] += 2
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in kept_metrics(made)
        for sample in metric.samples
    }
    assert shown["kvroute_made_ids",] == 1
    assert shown["kvroute_made_ids_lost_total", "unreadable"] == 2
    assert shown["kvroute_made_ids_lost_total", "idle"] == 0
    assert [metric.name for metric in kept_metrics(None)]
