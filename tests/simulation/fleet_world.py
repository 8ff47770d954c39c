"""Whole engines, a network with every fault, and the index that listens: chaos, healing, quiet.

    traffic ─▶ match, predict ─▶ Engine (tree core, GPU, host, storage) ─▶ first byte: observe ─▶ end: report
                                    └─ flush ─▶ BatchLog ─▶ FaultyLink ─▶ Intake ─▶ (Backlog) ─▶ FleetIndex
                                                   └───── replays of every kind ─────┘

At quiet every rank's announced claims are held against what its tree holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from indexer import Backlog, FleetIndex, IndexLimits, Intake, StreamLimits
from protocol import (
    AllBlocksCleared,
    EngineHash,
    EngineKind,
    EventSource,
    Rank,
    Tier,
    WorkerId,
    WorkerSpec,
)
from tests.simulation.agenda import Agenda
from tests.simulation.faulty_link import FaultyLink, Sent
from tests.simulation.fleet_chaos import PACE_S, FleetChaos
from tests.simulation.fleet_request import MODEL, Ask, OpenRequest
from tests.simulation.fleet_scenario import Replay, Scenario
from tests.simulation.tally import Met, Tally
from tests.worker.virtual_time import SAMPLER
from worker.batch_log import BatchLog
from worker.engine import Engine
from worker.engine_settings import EngineSettings, QueueFullError, RequestTooLargeError
from worker.request import EngineRequest, Usage
from worker.storage import MemoryStorage

TOPIC = "kv"
STREAM_LIMITS = StreamLimits(
    hold_batches=8,
    remembered_payloads=16,
    replay_timeout_s=1.0,
    replay_total_s=6.0,
    replay_rounds=5,
    repair_s=2.0,
    repair_max_s=8.0,
    settle_s=0.5,
    silence_s=8.0,
)
INDEX_LIMITS = IndexLimits(
    cleared_at_once=8,
    observed_ttl_exact_s=5.0,
    observed_ttl_s=20.0,
    predicted_ttl_s=20.0,
    doubt_ttl_s=20.0,
)
TICK_S = 0.5
SETTLE_S = 20.0


@dataclass(slots=True, eq=False)
class RankProcess:
    """One rank of an engine's present process; it says and takes nothing before it has started."""

    rank: Rank
    engine: Engine
    log: BatchLog
    epoch: int
    has_started: bool = False


class FleetWorld:
    """Engines, links, index, and what is true. ``run`` plays chaos, healing and quiet; ``verify`` judges.

    Args:
        seed: of all that happens.
        scenario: drawn from the seed where it is left out.
        has_more_faults: clears, delays, late replays, clients that leave, larger pages and pairs, too.
        tally: counts what happens.

    Attributes:
        reported: what engines say of the tokens that they reused.
        prefixes: what prompts begin with.
    """

    def __init__(
        self,
        seed: int,
        scenario: Scenario | None = None,
        limits: IndexLimits = INDEX_LIMITS,
        *,
        has_more_faults: bool = False,
        tally: Tally | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.scenario = scenario or Scenario.draw(self.rng)
        if has_more_faults:
            self.scenario = self.scenario.and_more(Random(-1 - seed))
        self.tally = Tally() if tally is None else tally
        self.agenda = Agenda()
        self.index = FleetIndex(limits)
        self.reported: Callable[[Usage], int | None] = lambda usage: usage.cached_tokens
        self._backlog = Backlog(self.index, max(self.scenario.num_parts, 1))
        sink = self._backlog if self.scenario.num_parts else self.index
        self.intake = Intake(sink, STREAM_LIMITS)
        self._storage = MemoryStorage() if self.scenario.has_storage else None
        self.processes: dict[Rank, RankProcess] = {}
        self.links: dict[Rank, FaultyLink] = {}  # by the ranks that speak on them
        self._open: dict[tuple[Rank, int], dict[str, OpenRequest]] = {}
        self._chaos = FleetChaos(self)
        self.prefixes = self._draw_prefixes()
        self._num_asked = self._num_steps = 0
        for name, settings in self.scenario.engines.items():
            self._start_engine(name, settings)

    @property
    def now(self) -> float:
        """Seconds."""
        return self.agenda.now

    def run(self) -> None:
        """Faults for a while, then a healthy network, then silence."""
        if self.scenario.is_late:
            for _ in range(self.rng.randrange(1, 30)):
                self.agenda.run_until(self.now + self.rng.expovariate(1 / PACE_S))
                self.ask_anything()
        self.join()
        end = self.now + self.scenario.duration_s
        while self.now < end:
            self.agenda.run_until(self.now + self.rng.expovariate(1 / PACE_S))
            self.ask_anything()
            self._chaos.maybe_break()
        self.heal()
        self.agenda.run_until(self.now + 5.0)
        for _ in range(6 if self.scenario.has_last_words else 0):
            for rank in self.processes:
                self.say_something(rank)
            self.agenda.run_until(self.now + 0.5)
        self.agenda.run_until(self.now + SETTLE_S)
        self.check()

    def join(self) -> None:
        """Listen to every publisher from now on."""
        for name in self.scenario.engines:
            self._listen(name)
        self.agenda.after(0.0, self._tick)
        for link in self._all_links():
            link.connect()

    def heal(self) -> None:
        """The network is good from now on."""
        for link in self._all_links():
            link.scenario = self.scenario.healed()
            if link.is_up and (self.scenario.reconnects or link.is_cut_off):
                link.break_off(0.1)
            self.tally[Met.HEALED_QUIETLY] += not self.scenario.reconnects

    def wait_out_doubt(self) -> None:
        """Until no doubtful, observed or predicted claim is left."""
        self.agenda.run_until(self.now + INDEX_LIMITS.doubt_ttl_s + 5.0)
        self.check()

    # Truth

    def truth(self, rank: Rank) -> dict[Tier, set[EngineHash]]:
        """What the rank's tree holds, by tier; storage is never announced."""
        held = self.processes[rank].engine.tree.residency()
        return {Tier.GPU: set(held.device), Tier.HOST: set(held.host), Tier.STORAGE: set()}

    def claims(self, rank: Rank) -> dict[Tier, set[EngineHash]]:
        """What the index says that the rank has announced."""
        return {tier: set(hashes) for tier, hashes in self.index.residency(rank).items()}

    def held_blocks(self, rank: Rank, ask: Ask) -> int:
        """Leading blocks that the rank's tree holds on any tier; touches nothing."""
        tree = self.processes[rank].engine.tree
        held = tree.residency()
        on_any = {*held.device, *held.host}
        run = 0
        for page in tree.page_hashes(ask.key):
            if page.event_hash not in on_any:
                break
            run += 1
        return run

    def credited_blocks(self, rank: Rank, ask: Ask) -> int:
        """Leading blocks that the index credits to the rank."""
        (match,) = self.index.match(ask.prompt, [rank], self.now)
        return match.matched_blocks

    @property
    def blind(self) -> set[Rank]:
        """Ranks of which nobody can know that they were restarted."""
        return {rank for link in self._all_links() for rank in link.blind}

    # Traffic

    def anything(self) -> Ask:
        """A prompt that begins as others do."""
        rng = self.rng
        prefix = rng.choice(self.prefixes)
        tail = tuple(rng.randrange(10**6, 10**7) for _ in range(rng.choice([0, 0, 3, 20])))
        extra_key, salt = rng.choice(self.scenario.extra_keys), rng.choice(self.scenario.salts)
        return Ask((*prefix, *tail), extra_key, salt)

    def ask_anything(self) -> None:
        """A request for any rank."""
        self.send(self.rng.choice(list(self.processes)), self.anything())

    def say_something(self, rank: Rank) -> None:
        """A request of which the rank has something to announce, if it has room."""
        tail = tuple(
            self.rng.randrange(10**7, 10**8) for _ in range(2 * self.scenario.largest_page)
        )
        self.send(rank, Ask((*tail, 1), self.scenario.extra_keys[0], self.scenario.salts[0]))

    def send(self, rank: Rank, ask: Ask) -> None:
        """Decide for a rank and send it a request, now."""
        process, prompt = self.processes[rank], ask.prompt
        if not process.has_started:
            return
        self._num_asked += 1
        request_id = f"r{self._num_asked}"
        request = EngineRequest(
            request_id, ask.tokens, self.rng.choice([1, 1, 5, 12]), ask.extra_key, ask.salt
        )
        (at_decision,) = self.index.match(prompt, [rank], self.now)
        try:
            process.engine.submit(request, self.now)
        except (QueueFullError, RequestTooLargeError):
            return
        self.index.predict(rank, prompt, self.now)
        opened = self._open.setdefault((rank, process.epoch), {})
        opened[request_id] = OpenRequest(ask, prompt, at_decision, self.now)
        self._step(process)

    def is_idle(self) -> bool:
        """Whether every engine has nothing to do."""
        return all(process.engine.is_idle for process in self.processes.values())

    def check(self) -> None:
        """Verify every invariant."""
        self.intake.check()
        self._backlog.check()
        self.index.check()

    # What happens

    def replace_process(self, process: RankProcess) -> None:
        """Another process in place of one: empty, numbers from 0, its requests are lost."""
        self._open.pop((process.rank, process.epoch), None)
        self._start_rank(process.rank, process.engine.renewed(), process.epoch + 1)

    def clear(self, process: RankProcess) -> bool:
        """The engine empties its cache; False where it does not, for it is busy."""
        is_cleared = process.has_started and process.engine.flush_cache(self.now)
        if is_cleared:
            self._step(process)
        return is_cleared

    def leave(self, process: RankProcess) -> bool:
        """A client does not wait for its answer; False where there is none."""
        opened = self._open.get((process.rank, process.epoch))
        if not opened:
            return False
        request = opened.pop(request_id := self.rng.choice(sorted(opened)))
        process.engine.cancel(request_id, self.now)
        if request.usage is None:
            under_way = [other.prompt for other in opened.values()]
            self.index.withdraw(process.rank, request.prompt, under_way)
        self._step(process)
        return True

    def _draw_prefixes(self) -> list[tuple[int, ...]]:
        """Prefixes; some share their beginning with the one before."""
        prefixes: list[tuple[int, ...]] = [()]
        for number in range(1, 1 + self.scenario.num_prefixes):
            shared = prefixes[-1][:24] if self.rng.random() < 0.4 else ()
            own = range(1_000 * number, 1_000 * number + self.rng.choice([8, 24, 60]))
            prefixes.append((*shared, *own))
        return prefixes[1:]

    def _start_engine(self, name: str, settings: EngineSettings) -> None:
        for dp_rank in range(self.scenario.num_ranks):
            engine = Engine(settings, SAMPLER, self._storage)
            self._start_rank(Rank(WorkerId(name), dp_rank), engine, 0)

    def _start_rank(self, rank: Rank, engine: Engine, epoch: int) -> None:
        log = BatchLog(rank.dp_rank, TOPIC, self.scenario.buffer_steps)
        process = self.processes[rank] = RankProcess(rank, engine, log, epoch)
        self.agenda.after(
            self.rng.choice([0.0, self.rng.uniform(0, 3)]), partial(self._boot, process)
        )

    def _boot(self, process: RankProcess) -> None:
        process.has_started = True
        self._step(process)

    def _listen(self, name: str) -> None:
        ranks = [rank for rank in self.processes if rank.worker == name]
        speakers = ranks[:1] if self.scenario.has_shared_socket else ranks
        has_replay = self.scenario.replay is not Replay.NONE
        sources = tuple(
            EventSource(rank, f"{rank}:1", f"{rank}:2" if has_replay else None, TOPIC)
            for rank in speakers
        )
        spec = WorkerSpec(
            WorkerId(name), f"http://{name}", MODEL, EngineKind.SGLANG,
            block_size=self.scenario.engines[name].tree.page_size, sources=sources,
            num_ranks=len(ranks),
        )  # fmt: skip
        self.index.add_worker(spec, self.now)
        for source in sources:
            behind = ranks if self.scenario.has_shared_socket else [source.rank]
            self.intake.add_source(source, self.now)
            link = FaultyLink(
                source, self.agenda, self.rng, self.scenario, self.intake,
                partial(self._logs, behind), partial(self._after_telling, WorkerId(name)), tally=self.tally,
            )  # fmt: skip
            self.links |= dict.fromkeys(behind, link)

    def _logs(self, ranks: list[Rank]) -> Mapping[Rank, BatchLog]:
        return {rank: self.processes[rank].log for rank in ranks}

    def _after_telling(self, worker: WorkerId) -> None:
        """Everything that a message led to is told before the next one is heard."""
        while self._backlog.is_behind(worker):
            self._backlog.work(worker, self.now)
        self._num_steps += 1
        if self._num_steps % 8 == 0:
            self.intake.check()
        if self._num_steps % 64 == 0:
            self.check()

    def _tick(self) -> None:
        for source, request in self.intake.on_tick(self.now):
            self.links[source.rank].ask(request)
        for name in self.scenario.engines:
            self._after_telling(WorkerId(name))
        if self.now % 1.0 < TICK_S:
            self.index.tick(self.now)
        self.agenda.after(TICK_S, self._tick)

    def _step(self, process: RankProcess) -> None:
        if self.processes[process.rank] is not process:
            return  # another process took its place
        result = process.engine.step(self.now)
        for output in result.outputs:
            self._hear_token(process, output.request_id, output.usage, output.finish is not None)
        for flush in result.flushes:
            message = process.log.append(flush.events, 1e9 + self.now + process.epoch * 1e-3)
            link = self.links.get(process.rank)
            if message is not None and link is not None:
                has_clear = any(isinstance(event, AllBlocksCleared) for event in flush.events)
                link.send(Sent(process.rank, process.epoch, message, has_clear))
        wakeup = process.engine.next_wakeup(self.now)
        if wakeup is not None:
            self.agenda.at(wakeup, partial(self._step, process))

    def _hear_token(
        self, process: RankProcess, request_id: str, usage: Usage | None, is_end: bool
    ) -> None:
        rank = process.rank
        request = self._open.get((rank, process.epoch), {}).get(request_id)
        if request is None:
            return
        if usage is not None:
            request.usage = usage
            self.index.observe(rank, request.prompt, self.now)
        if is_end:
            del self._open[rank, process.epoch][request_id]
            assert request.usage is not None
            self.index.report(
                rank, request.prompt, self.reported(request.usage),
                request.at_decision, request.decided_at, self.now,
            )  # fmt: skip

    def links_of(self, name: str) -> list[FaultyLink]:
        """The links of an engine, one a rank."""
        return [link for rank, link in self.links.items() if rank.worker == name]

    def _all_links(self) -> list[FaultyLink]:
        return list({id(link): link for link in self.links.values()}.values())
