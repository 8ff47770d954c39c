"""The fleet index against an oracle of sets, over any order of events, requests, losses and restarts."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indexer.actions import ForgetReason
from indexer.fleet_index import FleetIndex
from indexer.limits import IndexLimits
from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    EventBatch,
    KvEvent,
    Rank,
    Tier,
    WorkerId,
    WorkerSpec,
)
from tests.indexer.fleet_oracle import BLOCK, MEDIA, Block, RankOracle, prompt_of, stored

LIMITS = IndexLimits()
EXACT, JOINED = Rank(WorkerId("exact")), Rank(WorkerId("joined"), 1)
RANKS = (EXACT, Rank(WorkerId("joined")), JOINED)

NAMESPACES = ((None, None), ("lora", None), (None, "salt"))
namespaces = st.sampled_from(NAMESPACES)
blocks = st.builds(
    lambda path, names: Block(path, *names), st.text("abc", min_size=1, max_size=4), namespaces
)
ranks = st.sampled_from(RANKS)
tiers = st.sampled_from(Tier)


class FleetMachine(RuleBasedStateMachine):
    """Ranks of worker ``exact`` hear everything; those of ``joined`` hold what nobody announced."""

    LIMITS = LIMITS

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.index = FleetIndex(self.LIMITS)
        self.oracles: dict[Rank, RankOracle] = {}

    @initialize()
    def start(self) -> None:
        for rank in RANKS:
            self.join(rank.worker)

    def join(self, worker: WorkerId) -> None:
        spec = WorkerSpec(worker, f"http://{worker}", "m", block_size=BLOCK, num_ranks=2)
        self.index.add_worker(spec, self.now)
        for rank in RANKS:
            if rank.worker == worker:
                self.oracles[rank] = RankOracle()
                trust = Trust.EXACT if rank == EXACT else Trust.JOINED
                self.index.set_trust(rank, trust, self.now)

    def apply(self, rank: Rank, *events: KvEvent) -> None:
        self.index.apply(rank, EventBatch(0.0, events), self.now)

    @rule(rank=ranks, block=blocks, data=st.data(), tier=tiers)
    def store(self, rank: Rank, block: Block, data: st.DataObject, tier: Tier) -> None:
        """Any piece of a path. On joined ranks its parent is known, so that evidence names nothing."""
        first = data.draw(st.integers(0, len(block.path) - 1))
        oracle = self.oracles[rank]
        chain = list(block.chain())
        if rank != EXACT and first and not oracle.is_named(chain[first - 1]):
            first = 0
        self.apply(rank, stored(block, first, tier))
        oracle.store(tier, chain[first:])

    @rule(rank=ranks, block=blocks, data=st.data(), tier=tiers)
    def store_backwards(self, rank: Rank, block: Block, data: st.DataObject, tier: Tier) -> None:
        """One event a block, children before their parents, in one batch."""
        if rank != EXACT:
            return
        chain = list(block.chain())
        self.apply(rank, *(stored(b, len(b.path) - 1, tier) for b in reversed(chain)))
        for b in reversed(chain):
            self.oracles[rank].store(tier, [b])

    @rule(rank=ranks, some=st.lists(blocks, min_size=1, max_size=4, unique=True), tier=tiers)
    def remove(self, rank: Rank, some: list[Block], tier: Tier) -> None:
        """Held or not, in any order."""
        self.apply(rank, BlockRemoved([b.engine_hash for b in some], MEDIA[tier]))
        self.oracles[rank].remove(tier, some)

    @rule(rank=ranks, tier=tiers)
    def remove_all_of_tier(self, rank: Rank, tier: Tier) -> None:
        some = sorted(self.oracles[rank].held[tier], key=str)
        self.apply(rank, BlockRemoved([b.engine_hash for b in some], MEDIA[tier]))
        self.oracles[rank].remove(tier, some)

    @rule(rank=ranks, tier=st.none() | tiers)
    def clear(self, rank: Rank, tier: Tier | None) -> None:
        self.apply(rank, AllBlocksCleared(None if tier is None else MEDIA[tier]))
        if tier is None:
            self.oracles[rank].clear_all()
        else:
            self.oracles[rank].clear(tier)

    @rule(rank=ranks)
    def restart(self, rank: Rank) -> None:
        self.index.forget(rank, ForgetReason.RESTARTED, self.now)
        self.oracles[rank].forget()

    @rule(rank=ranks)
    def lose(self, rank: Rank) -> None:
        self.index.record_loss(rank, self.now)
        self.oracles[rank].lose(self.now, LIMITS.doubt_ttl_s)

    @rule(rank=ranks, block=blocks)
    def dispatch(self, rank: Rank, block: Block) -> None:
        self.index.predict(rank, prompt_of(block), self.now)
        self.oracles[rank].predict(block, self.now)

    @rule(rank=ranks, block=blocks, under_way=st.lists(blocks, max_size=2))
    def give_up(self, rank: Rank, block: Block, under_way: list[Block]) -> None:
        self.index.withdraw(rank, prompt_of(block), [prompt_of(other) for other in under_way])
        self.oracles[rank].withdraw(block, under_way)

    @rule(rank=ranks, block=blocks)
    def answer(self, rank: Rank, block: Block) -> None:
        self.index.observe(rank, prompt_of(block), self.now)
        self.oracles[rank].observe(block, self.now, is_exact=rank == EXACT)

    @rule(seconds=st.sampled_from([1.0, 20.0, 40.0, 650.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.index.tick(self.now)
        for rank, oracle in self.oracles.items():
            is_exact = rank == EXACT
            ttl = LIMITS.observed_ttl_exact_s if is_exact else LIMITS.observed_ttl_s
            oracle.expire(self.now, ttl, LIMITS.predicted_ttl_s)

    @rule(worker=st.sampled_from(sorted({rank.worker for rank in RANKS})))
    def replace_worker(self, worker: WorkerId) -> None:
        """A removed worker's queued events change nothing; the same name begins anew."""
        self.index.remove_worker(worker)
        rank = next(rank for rank in RANKS if rank.worker == worker)
        self.apply(rank, stored(Block("a"), 0, Tier.GPU))
        self.index.check()
        self.join(worker)

    @invariant()
    def index_is_sound(self) -> None:
        self.index.check()
        for namespace in NAMESPACES:
            if not any(oracle.uses(*namespace) for oracle in self.oracles.values()):
                for oracle in self.oracles.values():
                    oracle.forget_names(*namespace)

    @invariant()
    def matches_are_true(self) -> None:
        for adapter, salt in ((None, None), ("lora", None), (None, "salt"), ("lora", "salt")):
            for path in ("abca", "aaaa", "abab", "bcab", "cccc"):
                self.assert_matches(Block(path, adapter, salt))

    @invariant()
    def residency_is_true(self) -> None:
        for rank, oracle in self.oracles.items():
            residency = self.index.residency(rank)
            for tier in Tier:
                named = {b.engine_hash for b in oracle.held[tier] if oracle.is_named(b)}
                assert set(residency[tier]) == named
                assert len(residency[tier]) == len(named)

    @invariant()
    def counters_are_true(self) -> None:
        for state in self.index.rank_states(self.now):
            oracle = self.oracles.get(state.rank)
            if oracle is not None:
                assert sum(state.unknown_removals.values()) == oracle.unknown_removals
                assert sum(state.duplicates.values()) == oracle.duplicates

    def assert_matches(self, block: Block) -> None:
        matches = self.index.match(prompt_of(block), list(self.oracles), self.now)
        for oracle, match in zip(self.oracles.values(), matches, strict=True):
            oracle.assert_match(block, match)


class RetiringMachine(FleetMachine):
    """Whatever is dropped at once is left behind in a retired slot."""

    LIMITS = IndexLimits(cleared_at_once=0)

    @invariant()
    def slots_are_swept(self) -> None:
        self.index.check()
        self.index.sweep(1_000)


TestFleet = FleetMachine.TestCase
TestRetiring = RetiringMachine.TestCase
TestRetiring.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestFleet.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
