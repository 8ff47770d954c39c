"""Storage pools against an oracle: any order of stores, removals, events and members."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import BlockRemoved
from tests.indexer.pooled_fleet import (
    HASHES,
    INFERS,
    NAME,
    PROMPT,
    TOKENS,
    PooledFleet,
    pooled,
    user,
)
from tests.indexer.small_fleet import SIZE, prompt, worker_spec


@dataclass
class PoolOracle:
    """What the pool and each rank hold of one prompt, as sets of block numbers."""

    announced: dict[str, set[int]] = field(default_factory=lambda: {w: set() for w in "abc"})
    gpu: dict[str, set[int]] = field(default_factory=lambda: {w: set() for w in "abc"})
    said: dict[str, set[int]] = field(default_factory=lambda: {"cpu": set(), "disk": set()})
    inferred: dict[int, float] = field(default_factory=dict)

    def run(self, worker: str, now: float) -> tuple[int, int]:
        """GPU and storage blocks of the run; a and b share the pool, c is alone."""
        gpu = storage = 0
        for block in range(8):
            stored = block in self.announced[worker]
            if worker != "c":
                stored = stored or any(block in self.announced[w] for w in "ab")
                stored = stored or any(block in held for held in self.said.values())
                stored = stored or self.inferred.get(block, 0.0) >= now - 60.0
            if block in self.gpu[worker]:
                gpu += 1
            elif stored:
                storage += 1
            else:
                break
        return gpu, storage


@dataclass
class Script:
    """Fleet and oracle, told the same."""

    fleet: PooledFleet
    oracle: PoolOracle

    def store(self, worker: str, span: range) -> None:
        self._store(worker, span, "GPU")
        self.oracle.gpu[worker] |= set(span)

    def remove(self, worker: str, span: range) -> None:
        self.fleet.remove(worker, HASHES[span.start : span.stop])
        self.oracle.gpu[worker] -= set(span)

    def write(self, worker: str, span: range) -> None:
        """A copy on host that does not stay."""
        self._store(worker, span, "CPU_PINNED")
        self.fleet.remove(worker, HASHES[span.start : span.stop], medium="CPU_PINNED")
        if worker != "c":
            self.oracle.inferred |= dict.fromkeys(span, self.fleet.now)

    def announce(self, worker: str, span: range) -> None:
        self._store(worker, span, "DISK")
        self.oracle.announced[worker] |= set(span)

    def withdraw(self, worker: str, span: range) -> None:
        self.fleet.remove(worker, HASHES[span.start : span.stop], medium="DISK")
        self.oracle.announced[worker] -= set(span)

    def clear(self, worker: str, _: range) -> None:
        if worker != "c":
            self.fleet.clear(worker)
            self.oracle.gpu[worker], self.oracle.announced[worker] = set(), set()

    def pool(self, worker: str, span: range) -> None:
        medium = "cpu" if worker == "a" else "disk"
        self.fleet.tell(pooled(HASHES[span.start : span.stop], medium))
        self.oracle.said[medium] |= set(span)

    def unpool(self, worker: str, span: range) -> None:
        medium = "cpu" if worker == "a" else "disk"
        self.fleet.tell(BlockRemoved(HASHES[span.start : span.stop], medium))
        self.oracle.said[medium] -= set(span)

    def wait(self, _: str, __: range) -> None:
        self.fleet.wait(25.0)

    def _store(self, worker: str, span: range, medium: str) -> None:
        hashes, tokens = (
            HASHES[span.start : span.stop],
            TOKENS[span.start * SIZE : span.stop * SIZE],
        )
        parent = HASHES[span.start - 1] if span.start else None
        self.fleet.store(worker, hashes, tokens, parent, medium)


VERBS = [Script.store, Script.remove, Script.write, Script.announce, Script.withdraw, Script.clear,
         Script.pool, Script.unpool, Script.wait]  # fmt: skip
spans = st.tuples(st.integers(0, 7), st.integers(1, 8)).map(lambda s: range(s[0], min(8, sum(s))))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from("abc"), spans), max_size=25))
def test_pools_against_an_oracle(
    steps: list[tuple[Callable[[Script, str, range], None], str, range]],
) -> None:
    rules = replace(INFERS, speaking=frozenset({NAME}))
    fleet = PooledFleet(user("a"), user("b"), worker_spec("c"), worker_spec("d"), rules=rules)
    script = Script(fleet, PoolOracle())
    chain = HASHES[:8], TOKENS[: 8 * SIZE]
    fleet.store("d", *chain)  # keeps the key space
    for worker in "abc":  # all of them know what the hashes name
        fleet.store(worker, *chain)
        fleet.remove(worker, HASHES[:8])
    for verb, worker, span in steps:
        verb(script, worker, span)
        for other in "abc":
            match = fleet.match(other, prompt(PROMPT))
            expected = script.oracle.run(other, fleet.now)
            assert (match.gpu_blocks, match.storage_blocks) == expected, (other, verb, span)
            assert (match.storage_source is None) == (match.storage_blocks == 0)
