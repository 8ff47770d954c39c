"""Storage pools in the index: who is credited with what, on which ground, and when that ends."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.actions import ForgetReason, LossCause
from indexer.backlog import Backlog
from indexer.fleet_index import FleetIndex
from indexer.identity import ClaimSkip
from indexer.intake import Intake
from indexer.limits import IndexLimits
from indexer.pool_book import PoolState
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EngineKind,
    EventBatch,
    EventSource,
    KvEvent,
    PoolName,
    Rank,
    StoragePool,
    StorageUse,
    WorkerSpec,
    pool_source,
)
from tests.indexer.small_fleet import (
    DEFAULT_LIMITS,
    SIZE,
    SmallFleet,
    blocks,
    names,
    prompt,
    rank,
    worker_spec,
)

NAME = PoolName("l3")
SPEAKS = StorageRules(speaking=frozenset({NAME}))
INFERS = StorageRules(infers=True, inferred_ttl_s=60.0)
TOKENS = blocks(1, 100)  # beyond the prefetch threshold of 256 tokens
HASHES = names(0, 100)
PROMPT = [*TOKENS, 7]


def pool(name: str | None = "l3", **fields: Any) -> StoragePool:
    named = None if name is None else PoolName(name)
    address = "10.0.0.9:1" if name is None else None
    return replace(StoragePool(named, "mooncake", address, "m", "tp1", ""), **fields)


def user(name: str, of: StoragePool | None = None, **fields: Any) -> WorkerSpec:
    """A worker of an engine that writes through to a pool."""
    use = StorageUse(pool() if of is None else of, writes_through=True)
    return worker_spec(
        name, **{"engine": EngineKind.SGLANG, "version": "0.5.23", "storage": use} | fields
    )


class PooledFleet(SmallFleet):
    """A fleet whose pools can be told things, too."""

    def __init__(
        self, *workers: WorkerSpec, rules: StorageRules, limits: IndexLimits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(limits=limits)
        self.index = FleetIndex(limits, rules)
        for worker in workers:
            self.add(worker)

    def tell(self, *events: KvEvent, name: PoolName = NAME) -> None:
        """The pool's own events."""
        self.index.apply(Rank(pool_source(name)), EventBatch(0.0, events), self.now)
        self.index.check()

    def source(self, worker: str, tokens: Iterable[int] = PROMPT) -> StorageSource | None:
        return self.match(worker, prompt(tokens)).storage_source

    def pool(self) -> PoolState:
        (state,) = self.index.pool_states()
        return state


def pooled(hashes: Sequence[EngineHash], medium: str = "cpu", **fields: Any) -> BlockStored:
    """As Mooncake's master says it: by hash alone."""
    return replace(BlockStored(hashes, None, (), SIZE, medium), **fields)


# Announced


def test_what_one_rank_announces_every_attached_one_can_fetch() -> None:
    fleet = PooledFleet(user("a"), user("b"), worker_spec("c"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.run("c", prompt(PROMPT)) == (0, 0, 0)
    assert fleet.source("b") is StorageSource.ANNOUNCED
    assert fleet.pool().blocks[StorageSource.ANNOUNCED] == 100
    fleet.remove("a", HASHES[50:], medium="STORAGE")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 50)


def test_the_block_is_there_as_long_as_one_rank_claims_it() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    for worker in "ab":
        fleet.store(worker, HASHES, TOKENS, medium="DISK")
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    fleet.index.remove_worker(rank("b").worker)
    fleet.index.check()
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_without_a_pool_storage_is_the_ranks_own() -> None:
    fleet = PooledFleet(worker_spec("a"), worker_spec("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    assert fleet.source("a") is StorageSource.ANNOUNCED
    assert fleet.index.pool_states() == []


@pytest.mark.parametrize(
    "other",
    [
        pool("l4"),
        pool(layout="tp2"),
        pool(namespace="x"),
        pool(backend="hf3fs"),
        pool(None),
        replace(pool(None), address=None),
    ],
)
def test_other_pools_share_nothing(other: StoragePool) -> None:
    fleet = PooledFleet(user("a"), user("b", other), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_fleet_without_news_of_pools_is_looked_up_without_them() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    assert fleet.pool().ranks == (rank("a"), rank("b"))
    assert set(fleet.pool().blocks.values()) == {0}


# The pool's own events


def test_a_pool_names_blocks_by_the_hashes_that_ranks_publish() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES[:60]))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 60)
    assert fleet.source("b") is StorageSource.POOL_EVENTS
    assert fleet.run("a", prompt(PROMPT)) == (100, 0, 0)
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 60)
    fleet.tell(BlockRemoved(HASHES[10:], "cpu"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 10)


def test_hashes_may_be_heard_of_before_their_blocks() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.tell(pooled(HASHES))
    assert fleet.pool().unnamed == 100
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.store("a", HASHES, TOKENS)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.pool().unnamed == 0


def test_blocks_that_ranks_adopt_late_are_named_too() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES[50:], TOKENS[200:], parent=HASHES[49])
    fleet.tell(pooled(HASHES))
    fleet.store("a", HASHES[:50], TOKENS[:200])
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)


def test_a_block_on_two_media_of_the_pool_leaves_with_the_last() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES), pooled(HASHES, "disk"), BlockRemoved(HASHES, "cpu"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    fleet.tell(BlockRemoved(HASHES, "disk"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_pool_may_tell_tokens_itself() -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS)
    fleet.tell(BlockStored(HASHES, None, TOKENS, SIZE))
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    fleet.tell(AllBlocksCleared())
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_events_of_another_model_are_counted_and_nothing_else() -> None:
    fleet = PooledFleet(user("a", tokenizer="/models/m"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES[:5], model="other"), BlockRemoved(HASHES[:5], "cpu", model="other"))
    assert fleet.pool().skips[ClaimSkip.OTHER_MODEL] == 10
    fleet.tell(pooled(HASHES[:5], model="/models/m"), pooled(HASHES[5:7], model="m"))
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 7)


def test_several_layouts_behind_one_name_need_events_that_name_their_model() -> None:
    fleet = PooledFleet(user("a"), user("b", pool(model="n"), model="n"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES[:50]), pooled(HASHES[:10], model="m"))
    assert {state.skips[ClaimSkip.OTHER_MODEL] for state in fleet.index.pool_states()} == {50, 60}
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 10)


def test_a_restart_or_a_loss_of_the_pool_ends_what_it_said() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    source = Rank(pool_source(NAME))
    fleet.store("a", HASHES, TOKENS)
    fleet.index.set_trust(source, Trust.EXACT, fleet.now)
    fleet.tell(pooled(HASHES))
    assert fleet.pool().trust is Trust.EXACT
    fleet.index.record_loss(source, fleet.now, LossCause.NO_REPLAY)
    fleet.tell(pooled(HASHES[:30]))
    fleet.wait(601.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 30)
    fleet.index.forget(source, ForgetReason.RESTARTED, fleet.now)
    fleet.index.check()
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_pool_is_shrunk_and_cleared_by_medium() -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS)
    source = Rank(pool_source(NAME))
    fleet.tell(BlockStored(HASHES, None, TOKENS, SIZE, "disk"))
    assert not fleet.index.shrink(source, "disk", 40, fleet.now)
    assert fleet.index.shrink(source, "disk", 60, fleet.now)
    assert fleet.index.shrink(source, "nowhere", 1, fleet.now)
    fleet.tell(AllBlocksCleared("disk"))
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_a_big_clear_moves_the_pool_to_another_slot() -> None:
    limits = IndexLimits(cleared_at_once=10)
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS, limits=limits)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    fleet.tell(AllBlocksCleared(), pooled(HASHES[:3]))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 3)
    fleet.wait(1.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 3)


def test_pools_count_towards_the_bound_of_all_claims() -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS, limits=IndexLimits(claims=64, age_grain=8))
    fleet.tell(BlockStored(HASHES, None, TOKENS, SIZE, "disk"))
    assert fleet.pool().skips[ClaimSkip.EVICTED] >= 36
    assert fleet.pool().blocks[StorageSource.POOL_EVENTS] <= 64


def test_events_of_a_pool_nobody_uses_are_counted() -> None:
    fleet = PooledFleet(worker_spec("a"), rules=SPEAKS)
    fleet.tell(pooled(HASHES))
    assert fleet.index.stats().skips[ClaimSkip.UNKNOWN_WORKER] == 1


def mooncake(seq: int, kind: str, *hashes: int) -> list[bytes]:
    """A message of Mooncake's master."""
    block = {"event_type": kind, "medium": "cpu", "model_name": "m", "block_size": SIZE}
    events = [block | {"seq_hashes": [one], "token_ids": None, "tp_rank": 0} for one in hashes]
    return [b"", seq.to_bytes(8, "big"), msgpack.packb([1_790_000_000_000, events, 0])]


def test_pools_are_heard_through_the_streams_that_ranks_are() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    known = [one for one in HASHES if isinstance(one, int)]
    source = EventSource(Rank(pool_source(NAME)), "tcp://master:5557")
    intake = Intake(Backlog(fleet.index))
    intake.add_source(source, fleet.now)
    intake.on_connected(source, fleet.now)
    intake.on_live(source, mooncake(0, "stored", *known), fleet.now)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    intake.on_live(source, mooncake(1, "removed", *known[40:]), fleet.now)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 40)
    intake.on_live(source, mooncake(3, "stored", *known[:7]), fleet.now)  # 2 is lost, for good
    assert fleet.pool().trust is Trust.DEGRADED
    fleet.wait(601.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 7)
    intake.on_live(source, mooncake(0, "stored", *known[:2]), fleet.now)  # another process
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 2)
    intake.remove_source(source, fleet.now)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.index.check()


# Inference


def test_a_copy_on_host_implies_one_in_the_pool() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.source("b") is StorageSource.INFERRED
    fleet.remove("a", HASHES, medium="CPU_PINNED")
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)


def test_inference_is_off_by_default() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_only_engines_that_write_through_imply_copies() -> None:
    back = StorageUse(pool(), writes_through=False)
    fleet = PooledFleet(user("a", storage=back), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.store("b", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)


def test_inferred_copies_age() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.wait(40.0)
    fleet.store("b", HASHES[:30], TOKENS[:120], medium="CPU_PINNED")  # as after a fetch
    fleet.wait(40.0)
    fleet.clear("b")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 30)
    fleet.wait(40.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_inferred_copies_are_bounded_and_the_oldest_go() -> None:
    rules = replace(INFERS, max_inferred=40)
    fleet = PooledFleet(user("a"), user("b"), rules=rules)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 40)
    assert fleet.pool().blocks[StorageSource.INFERRED] == 40


def test_a_store_that_is_gone_within_its_batch_implies_a_copy_all_the_same() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    event = BlockStored(HASHES, None, TOKENS, SIZE, "CPU_PINNED")
    fleet.apply("a", event, BlockRemoved(HASHES, "CPU_PINNED"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)  # its key space went with it
    fleet.store("a", [99], [1, 1, 1, 1])
    fleet.apply("a", event, BlockRemoved(HASHES, "CPU_PINNED"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)


@pytest.mark.parametrize(
    ("cached", "left"),
    [
        (400, 100),  # all of it
        (396, 100),  # but for one block, as with a draft model
        (200, 50),
        (0, 0),
    ],
)
def test_a_report_ends_what_it_contradicts(cached: int, left: int) -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.serve("b", prompt(PROMPT), cached)
    fleet.clear("b")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, left)
    assert fleet.pool().contradicted == 100 - left


@pytest.mark.parametrize(("cached", "contradicted"), [(40, 0), (80, 80)])
def test_a_report_below_what_the_rank_holds_itself_says_nothing_of_the_pool(
    cached: int, contradicted: int
) -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.store("b", HASHES[:20], TOKENS[:80])
    fleet.serve("b", prompt(PROMPT), cached)
    assert fleet.pool().contradicted == contradicted


def test_what_is_too_short_to_be_fetched_is_not_contradicted() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    short = blocks(1, 40)
    fleet.store("a", HASHES[:40], short, medium="CPU_PINNED")
    fleet.serve("b", prompt([*short, 7]), 0)
    assert fleet.pool().contradicted == 0
    fleet.add(user("c", prefetch_threshold=64))
    fleet.serve("c", prompt([*short, 7]), 0)
    assert fleet.pool().contradicted == 40


def test_announced_copies_are_not_what_inference_drops() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=replace(INFERS, speaking=frozenset({NAME})))
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.tell(pooled(HASHES[:50]))
    assert fleet.source("b") is StorageSource.INFERRED
    fleet.serve("b", prompt(PROMPT), 0)
    fleet.clear("b")
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 50)
    assert fleet.source("b") is StorageSource.POOL_EVENTS


@pytest.mark.parametrize("is_pooled", [True, False])
def test_what_is_fetched_from_a_pool_is_explained_by_it(is_pooled: bool) -> None:
    """Engines whose connectors load storage straight to GPU announce no host copy."""
    vllm: dict[str, Any] = {"engine": EngineKind.VLLM, "version": "0.32.0"}
    fleet = PooledFleet(user("a", **vllm), user("b", **vllm), rules=SPEAKS)
    for number in range(3):
        tokens, hashes = blocks(1_000 * number + 1, 20), names(100 * number, 20)
        load = BlockStored(hashes, None, tokens, SIZE, "GPU")
        fleet.apply("a", load)
        if is_pooled:
            fleet.tell(pooled(hashes))
        fleet.serve("b", prompt([*tokens, 7]), 80, [load])
        fleet.wait(3.0)
    assert ("host_stores_unannounced" in fleet.findings()) is not is_pooled


# Membership


def test_what_is_on_its_way_to_the_gpu_is_not_counted_as_storage() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.index.predict(rank("b"), prompt(PROMPT), fleet.now)
    match = fleet.match("b", prompt(PROMPT))
    assert (match.storage_blocks, match.predicted_blocks) == (0, 100)


def test_a_worker_may_change_its_pool_and_keep_its_cache() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.add(user("b", pool("l4")))
    fleet.index.check()
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.add(user("b"))
    fleet.index.check()
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert len(fleet.index.pool_states()) == 1


def test_a_pool_goes_with_the_last_worker() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.index.remove_worker(rank("a").worker)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    fleet.index.remove_worker(rank("b").worker)
    fleet.index.check()
    assert fleet.index.pool_states() == []
    assert fleet.index.stats().blocks == 0
    fleet.add(user("a"))
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_a_late_worker_is_credited_at_once() -> None:
    fleet = PooledFleet(user("a"), rules=StorageRules())
    fleet.store("a", HASHES, TOKENS, medium="STORAGE")
    fleet.add(user("b"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.index.pools_named(NAME) == {pool()}
    assert fleet.index.pools_named(PoolName("l4")) == frozenset()


# Against an oracle


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
