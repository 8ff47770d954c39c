"""The story, told once: prefixes leave GPU and host, come back from storage, and are asked for.

    compute    each worker computes its share; copies go to host, and from there to storage
    refill     each worker is sent other shares, straight: they come from storage into its host pool, are
               loaded, leave the GPU again for the next ones, and push out every host copy that was
               computed; now only refilled copies are on host
    decide     requests through the router, one at a time; before each the fleet is at rest, and what every
               worker holds is compared with what the router's decision claims
    evict      more refills push out the refilled copies, a host pool full on each worker; what is left of
               them, and what the router claims then, is compared once more

With events muted on the workers everything is the same but that refills are not announced.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

from loadgen.answer import Answer
from loadgen.control_port import ControlPort, DecisionView, FindingView
from loadgen.fleet import Fleet, start_fleet
from loadgen.refill.fleet_watch import FleetWatch, RestingFleet, UnsettledError
from loadgen.refill.prefixes import PrefixBook
from loadgen.refill.sizes import RefillSpec
from loadgen.refill.truth import num_mismatches
from loadgen.replay import send
from loadgen.report import Percentiles, percentiles
from loadgen.scratch import scratch_directory
from protocol import EngineHash
from worker.storage import DirectoryStorage


class StoryError(Exception):
    """The stage is not set as the story needs it. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class RefillRun:
    """What one telling showed. Tokens are the workers' own counters.

    Attributes:
        truth_host_only: decisions whose prefix was on host and not on GPU on some rank.
        decisions_with_host_pinned: decisions in which a rank had announced host blocks.
        mismatches: decision × rank × tier where the announced claims differ from the truth.
        tokens_refilled: up to the end of the decisions, like the other tokens.
        refilled_while_deciding: what of them was refilled while the requests were decided.
        host_tokens_evicted: by the refills after the decisions.
        host_copies_left: blocks that were on host at the last decision and still are on the same rank
            after those refills.
        mismatches_afterwards: like ``mismatches``, prefix × rank × tier after those refills.
        removes_of_unknown: removals of blocks never announced, up to the end.
        first_findings: decisions made until a finding of the kind was first seen.
        findings: at the end.
        ttft_ms: of the decided requests, at the client.
    """

    decisions: int
    prefixes: int
    tokens_refilled: int
    storage_tokens_fetched: int
    refilled_while_deciding: int
    tokens_loaded_back: int
    tokens_demoted: int
    truth_host_only: int
    decisions_with_host_pinned: int
    mismatches: int
    host_tokens_evicted: int
    host_copies_left: int
    mismatches_afterwards: int
    removes_of_unknown: int
    cached_token_share: float
    first_findings: dict[str, int] = field(default_factory=dict)
    findings: tuple[FindingView, ...] = ()
    ttft_ms: Percentiles | None = None

    def to_json(self) -> dict[str, object]:
        """Plain values, with the field names above."""
        findings = [finding.model_dump() for finding in self.findings]
        return asdict(replace(self, findings=())) | {"findings": findings}


@dataclass(slots=True)
class _Tally:
    truth_host_only: int = 0
    with_host_pinned: int = 0
    mismatches: int = 0
    answers: list[Answer] = field(default_factory=list)
    first_findings: dict[str, int] = field(default_factory=dict)


async def tell(
    spec: RefillSpec,
    token_ids: tuple[int, ...],
    model: str,
    *,
    is_muted: bool,
    on_step: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
) -> RefillRun:
    """Start a fleet, tell the story, end the fleet.

    Args:
        token_ids: to make prompts of; as many as a vocabulary gives.
        on_step: called with the stage, how much of it is done, and its size.

    Raises:
        StoryError: the stage could not be set, or a request failed.
        ChildError: a process did not start.
        ControlPortError: the router or a worker does not tell what it is asked.
    """
    book = PrefixBook(spec, model, token_ids)
    with scratch_directory() as root:
        storage = root / "storage"
        async with start_fleet(spec.fleet(str(storage), is_muted=is_muted), root) as fleet:
            return await _Telling(spec, book, fleet, DirectoryStorage(storage), on_step).run()


class _Telling:
    """One telling over a running fleet."""

    def __init__(
        self,
        spec: RefillSpec,
        book: PrefixBook,
        fleet: Fleet,
        storage: DirectoryStorage,
        on_step: Callable[[str, int, int], None],
    ) -> None:
        self._spec = spec
        self._book = book
        self._fleet = fleet
        self._control = ControlPort(fleet.control_url, fleet.session)
        self._watch = FleetWatch(fleet, self._control, spec.settle_s)
        self._storage = storage
        self._on_step = on_step

    async def run(self) -> RefillRun:
        try:
            computed = await self._compute()
            before = await self._refill()
            tally = await self._decide()
            after = await self._watch.at_rest()
            _require_no_growth(computed, after)
            await self._evict(after)
            evicted = await self._watch.at_rest()
        except UnsettledError as error:
            raise StoryError(str(error)) from error
        run = await self._with_aftermath(self._result(tally, before, after), after, evicted)
        findings = tuple(await self._control.findings())
        unknown = sum(
            count
            for worker in await self._control.workers()
            for rank in worker.ranks
            for count in rank.unknown_removals.values()
        )
        return replace(run, findings=findings, removes_of_unknown=unknown)

    async def _compute(self) -> RestingFleet:
        workers = range(self._spec.num_workers)
        await self._send_each("compute", [list(self._spec.computed_by(w)) for w in workers])
        resting = await self._watch.at_rest()
        for prefix in range(self._spec.num_prefixes):
            digests = self._book.digests(prefix)
            if self._storage.exists(digests) < len(digests):
                raise StoryError(f"prefix {prefix} did not reach storage")
        return resting

    async def _refill(self) -> RestingFleet:
        """Ends when no computed host copy is left, which is verified."""
        workers = range(self._spec.num_workers)
        await self._send_each("refill", [self._spec.refilled_by(w) for w in workers])
        resting = await self._watch.at_rest()
        for worker_index, worker in enumerate(resting.workers.values()):
            for prefix in self._spec.computed_by(worker_index):
                if any(rank.host_copies(self._book.hashes(prefix)) for rank in worker.ranks):
                    raise StoryError(f"worker {worker_index} still has prefix {prefix} on host")
        return resting

    async def _decide(self) -> _Tally:
        tally = _Tally()
        for index in range(self._spec.decisions):
            resting = await self._watch.at_rest()
            await self._decide_one(index % self._spec.num_prefixes, resting, tally)
            for finding in await self._control.findings():
                tally.first_findings.setdefault(finding.kind, index + 1)
            self._on_step("decide", index + 1, self._spec.decisions)
        return tally

    async def _decide_one(self, prefix: int, resting: RestingFleet, tally: _Tally) -> None:
        hashes = self._book.hashes(prefix)
        answer = await self._send(self._fleet.router_url, prefix)
        if answer.request_id is None:
            raise StoryError("the router's answer has no x-request-id")
        decision = await self._control.decision(answer.request_id)
        runs = [rank.run(hashes) for rank in resting.ranks]
        tally.answers.append(answer)
        tally.truth_host_only += any(run.is_host_only(len(hashes)) for run in runs)
        tally.with_host_pinned += any(c.host_pinned_blocks > 0 for c in decision.candidates)
        tally.mismatches += _num_mismatches(decision, hashes, resting)

    async def _evict(self, resting: RestingFleet) -> None:
        """Send each worker a host pool full of prefixes that it does not have."""
        wanted = [
            [
                prefix
                for prefix in range(self._spec.num_prefixes)
                if not any(rank.holds(self._book.hashes(prefix)) for rank in worker.ranks)
            ][: self._spec.host_prefixes]
            for worker in resting.workers.values()
        ]
        await self._send_each("evict", wanted)

    async def _with_aftermath(
        self, run: RefillRun, decided: RestingFleet, evicted: RestingFleet
    ) -> RefillRun:
        """Add what the refills after the decisions left: copies, and claims of them (dry runs)."""
        left = mismatches = 0
        for prefix in range(self._spec.num_prefixes):
            hashes = self._book.hashes(prefix)
            left += sum(
                after.host_copies(hashes)
                for before, after in zip(decided.ranks, evicted.ranks, strict=True)
                if before.host_copies(hashes)
            )
            decision = await self._control.route(self._book.request(prefix).body, "completions")
            mismatches += _num_mismatches(decision, hashes, evicted)
        counter = "tree_host_evicted"
        return replace(
            run,
            host_tokens_evicted=evicted.total(counter) - decided.total(counter),
            host_copies_left=left,
            mismatches_afterwards=mismatches,
        )

    async def _send_each(self, stage: str, wanted: list[list[int]]) -> None:
        """Send each worker its prefixes one after the other, all workers at the same time."""
        total, done = sum(map(len, wanted)), 0

        async def send_all(url: str, prefixes: Iterable[int]) -> None:
            nonlocal done
            for prefix in prefixes:
                await self._send(url, prefix)
                done += 1
                self._on_step(stage, done, total)

        async with asyncio.TaskGroup() as group:
            for url, prefixes in zip(self._fleet.worker_urls, wanted, strict=True):
                group.create_task(send_all(url, prefixes))

    async def _send(self, url: str, prefix: int) -> Answer:
        answer = await send(self._fleet.session, url, self._book.request(prefix))
        if answer.error is not None:
            raise StoryError(f"a request to {url} failed: {answer.error}: {answer.detail}")
        return answer

    def _result(self, tally: _Tally, before: RestingFleet, after: RestingFleet) -> RefillRun:
        refilled = after.total("tokens_refilled")
        prompts = sum(answer.usage.prompt_tokens or 0 for answer in tally.answers)
        cached = sum(answer.usage.cached_tokens or 0 for answer in tally.answers)
        return RefillRun(
            decisions=len(tally.answers),
            prefixes=len({answer.group for answer in tally.answers}),
            tokens_refilled=refilled,
            storage_tokens_fetched=after.total("storage_tokens_fetched"),
            refilled_while_deciding=refilled - before.total("tokens_refilled"),
            tokens_loaded_back=after.total("tree_loaded_back"),
            tokens_demoted=after.total("tree_demoted"),
            truth_host_only=tally.truth_host_only,
            decisions_with_host_pinned=tally.with_host_pinned,
            mismatches=tally.mismatches,
            host_tokens_evicted=0,
            host_copies_left=0,
            mismatches_afterwards=0,
            removes_of_unknown=0,
            cached_token_share=round(cached / prompts, 4) if prompts else 0.0,
            first_findings=tally.first_findings,
            ttft_ms=percentiles([a.ttft_ms for a in tally.answers if a.ttft_ms is not None]),
        )


def _num_mismatches(
    decision: DecisionView, hashes: Sequence[EngineHash], resting: RestingFleet
) -> int:
    """Rank × tier where claims and truth differ.

    Raises:
        StoryError: a rank was not weighed.
    """
    if len(decision.candidates) != len(resting.ranks):
        raise StoryError(f"{len(decision.candidates)} candidates for {len(resting.ranks)} ranks")
    return sum(
        num_mismatches(one, resting.rank(one.worker, one.dp_rank).run(hashes))
        for one in decision.candidates
    )


def _require_no_growth(computed: RestingFleet, after: RestingFleet) -> None:
    """Since the prefixes were computed nothing was computed again, nor copied from GPU to host: every
    host copy since then is a refilled one, and no request added a block of its own.

    Raises:
        StoryError: something was.
    """
    for counter in ("tree_inserted", "tree_backed_up"):
        grown = after.total(counter) - computed.total(counter)
        if grown:
            raise StoryError(f"{counter} grew by {grown} tokens after all prefixes were computed")
