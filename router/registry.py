"""The workers: who there is, what is known of them, and what index, planner and streams are told.

The registry is the one place where a worker comes, changes and goes. It makes no call of its own: probes
tell it what they found, the relay how attempts ended, the control port what operators want. A worker that
cannot be reached stays listed and is tried again; it takes no part until it has been learned.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.same_cache import is_same_cache
from indexer.subscriber import EventSubscriber
from protocol import PoolName, Rank, WorkerId, WorkerSpec
from router.bootstrap import Bootstrap, BootstrapOutcome
from router.breaker import Breaker, BreakerLimits
from router.discovery import Discovered, NamedEvents
from router.health import HealthRecord
from router.model_cards import merged_cards
from router.outages import Outages
from router.own_routes import Readiness
from router.plain_text import plain
from router.restarts import count_restarts, is_heard_already
from router.shelf import PromptShelf, Shelved
from router.stream_recovery import is_recovered
from router.worker_record import WorkerRecord, WorkerState
from router.worker_summary import summary
from scoring import OutcomeKind, Planner

logger = logging.getLogger(__name__)


class WorkerExistsError(Exception):
    """There is a worker of this name or URL."""


class RegistryFullError(Exception):
    """No more workers are allowed."""


class UnknownWorkerError(Exception):
    """There is no worker of this name."""


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """Bounds and thresholds.

    Attributes:
        max_workers: further ones are refused.
        min_ready: workers that must serve before the router is ready.
        recovery_s: how long readiness waits for the index of a worker, and the verdict that a model is
            unknown for a worker never reached.
    """

    max_workers: int = 1024
    min_ready: int = 1
    recovery_s: float = 30.0
    health_threshold: int = 3
    breaker: BreakerLimits = field(default_factory=BreakerLimits)


@dataclass(frozen=True, slots=True)
class Brains:
    """Who is told of workers."""

    index: FleetIndex
    planner: Planner
    intake: Intake
    subscriber: EventSubscriber
    shelf: PromptShelf
    bootstrap: Bootstrap | None = None


class Registry:
    """All workers, by id. Single owner of their records; ``now`` is monotonic seconds.

    Args:
        outages: is told of workers that turn unhealthy.
        events: event endpoints of workers that are added without some of their own.
    """

    def __init__(
        self,
        brains: Brains,
        limits: RegistryLimits,
        outages: Outages | None = None,
        events: NamedEvents | None = None,
    ) -> None:
        self._brains = brains
        self._outages = outages or Outages()
        self._limits = limits
        self._events = events
        self._records: dict[WorkerId, WorkerRecord] = {}
        self._recovered: set[WorkerId] = set()
        self._overdue: set[WorkerId] = set()  # not reached in time
        self._was_recovered = False
        self.is_draining = False

    # -- who there is ------------------------------------------------------------------------------

    def add(
        self,
        worker: WorkerId,
        url: str,
        now: float,
        events: NamedEvents | None = None,
        storage_pool: PoolName | None = None,
        max_in_flight: int | None = None,
    ) -> WorkerRecord:
        """List a worker; it takes part once it has been learned.

        Raises:
            WorkerExistsError: its name or URL is taken.
            RegistryFullError: there are as many as are allowed.
        """
        if worker in self._records or any(one.url == url for one in self._records.values()):
            raise WorkerExistsError(f"there is a worker {worker} or one at {url}")
        if len(self._records) >= self._limits.max_workers:
            raise RegistryFullError(f"at most {self._limits.max_workers} workers")
        record = WorkerRecord(
            worker,
            url,
            HealthRecord(self._limits.health_threshold),
            Breaker(self._limits.breaker),
            since=now,
            events=events or self._events,
            storage_pool=storage_pool,
            max_in_flight=max_in_flight,
        )
        self._records[worker] = record
        return record

    def remove(self, worker: WorkerId) -> None:
        """Forget a worker and all that was known of its cache; what runs on it goes on.

        Raises:
            UnknownWorkerError: there is none of this name.
        """
        record = self.record(worker)
        del self._records[worker]
        self._overdue.discard(worker)
        self._take_out(record)
        logger.info("worker %s removed", worker)

    def set_draining(self, worker: WorkerId, *, is_draining: bool) -> WorkerRecord:
        """Give a worker no new requests, or again.

        Raises:
            UnknownWorkerError: there is none of this name.
        """
        record = self.record(worker)
        record.is_draining = is_draining
        self._brains.planner.set_draining(worker, is_draining)
        return record

    def record(self, worker: WorkerId) -> WorkerRecord:
        """What is known of a worker.

        Raises:
            UnknownWorkerError: there is none of this name.
        """
        if worker not in self._records:
            raise UnknownWorkerError(f"no worker {worker}")
        return self._records[worker]

    def find(self, worker: WorkerId) -> WorkerRecord | None:
        """What is known of a worker; None where there is none of this name."""
        return self._records.get(worker)

    def records(self) -> list[WorkerRecord]:
        """Every worker, in the order in which they came."""
        return list(self._records.values())

    def specs(self) -> list[WorkerSpec]:
        """Every worker that has been learned."""
        return [record.spec for record in self._records.values() if record.spec is not None]

    @property
    def bootstrap_outcomes(self) -> Mapping[BootstrapOutcome, int]:
        """How often each end of an attempt to take a worker over from a sibling was seen."""
        bootstrap = self._brains.bootstrap
        found = {} if bootstrap is None else bootstrap.outcomes
        return {outcome: found.get(outcome, 0) for outcome in BootstrapOutcome}

    # -- what probes find --------------------------------------------------------------------------

    def learned(self, worker: WorkerId, found: Discovered, shelved: Shelved, now: float) -> None:
        """A worker described itself, for the first time or again.

        A worker with another cache (`is_same_cache`) starts anew, unless its events told of it before; one with
        other names goes on.
        """
        record = self._records.get(worker)
        if record is None or record.url != found.spec.url:
            return
        known, old, new = record.discovered, record.spec, found.spec
        record.discovered, record.error, record.num_attempts = found, None, 0
        record.is_refused = False
        self._overdue.discard(worker)
        if old != new:
            self._brains.planner.add_worker(new)
            self._brains.planner.set_draining(worker, record.is_draining)
            restarts = count_restarts(self._brains.intake, new)
            if old is not None and (
                is_same_cache(old, new) or is_heard_already(old, new, record.restarts, restarts)
            ):
                self._brains.index.add_worker(new, now, is_heard=True)
            else:
                self._begin_anew(record, old, new, now)
            logger.info("worker %s is %s", worker, summary(new))
        if found.faults and (known is None or known.faults != found.faults):
            logger.warning("of worker %s was not taken: %s", worker, "; ".join(found.faults))
        record.restarts = count_restarts(self._brains.intake, new)
        self._brains.shelf.put(new, shelved)
        self._brains.shelf.keep(self.specs())
        self._settle(record)

    def not_learned(self, worker: WorkerId, error: str) -> None:
        """A worker could not be reached or understood."""
        record = self._records.get(worker)
        if record is None:
            return
        error = plain(error)
        if record.error != error:
            logger.warning("worker %s cannot be learned: %s", worker, error)
        record.error = error
        record.num_attempts += 1

    def refused(self, worker: WorkerId, why: str) -> None:
        """A worker cannot serve whole requests: it takes no part, or no more, until it has been learned as another."""
        record = self._records.get(worker)
        if record is None:
            return
        self.not_learned(worker, why)
        record.is_refused = True
        self._overdue.add(worker)
        self._take_out(record)

    def probed(self, worker: WorkerId, fault: str | None, now: float) -> None:
        """A health probe was answered well, or ``fault`` says why not."""
        record = self._records.get(worker)
        if record is None:
            return
        record.probe_fault = None if fault is None else plain(fault)
        was_healthy = record.health.is_healthy
        record.health.record(is_ok=fault is None)
        record.breaker.probed(now, is_ok=fault is None)
        if record.health.is_healthy is not was_healthy:
            if fault is None:
                logger.info("worker %s is healthy again", worker)
            else:
                failures = record.health.num_failures
                text = "worker %s is unhealthy: %s, %d probes in a row"
                logger.warning(text, worker, record.probe_fault, failures)
                self._outages.declare(worker)
        self._settle(record)

    def told_sleep(self, worker: WorkerId, *, is_asleep: bool) -> None:
        """A worker says whether it sleeps or is paused."""
        record = self._records.get(worker)
        if record is None or record.discovered is None or record.discovered.is_asleep is is_asleep:
            return
        record.discovered = replace(record.discovered, is_asleep=is_asleep)
        logger.info("worker %s %s", worker, "sleeps" if is_asleep else "is awake again")
        self._settle(record)

    # -- what the relay sees -----------------------------------------------------------------------

    def attempt_ended(self, rank: Rank, kind: OutcomeKind, now: float) -> None:
        """An attempt on ``rank`` is over: its worker's breaker counts it."""
        record = self._records.get(rank.worker)
        if record is None:
            return
        before = record.breaker.state
        record.breaker.record(kind, now)
        if kind is OutcomeKind.CONNECT_FAILED:
            record.doubt.set()
        if record.breaker.state is not before:
            logger.warning("breaker of worker %s is %s", rank.worker, record.breaker.state)
            self._settle(record)

    def tick(self, now: float) -> None:
        """What time alone changes. O(workers)."""
        for record in self._records.values():
            record.breaker.tick(now)
            self._settle(record)
            self._tell_connections(record, now)
            is_late = now - record.since >= self._limits.recovery_s
            if record.spec is None:
                if is_late:
                    self._overdue.add(record.worker)
            elif is_late or is_recovered(record.spec, self._brains.intake, self._brains.index, now):
                self._recovered.add(record.worker)
        serving = self._serving()
        if len(serving) >= self._limits.min_ready and self._recovered.issuperset(serving):
            self._was_recovered = True

    # -- what the data port shows ------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Enough workers serve, their indexes were recovered once, and no shutdown is under way.

        Workers that come later do not take readiness away while theirs are recovered.
        """
        if self.is_draining:
            return Readiness(is_ready=False, detail="draining")
        serving = self._serving()
        num_recovered = len(self._recovered.intersection(serving))
        detail = (
            f"{len(serving)} of {len(self._records)} workers serve, {num_recovered} of them with a"
            f" recovered index; at least {self._limits.min_ready} needed"
        )
        is_ready = self._was_recovered and len(serving) >= self._limits.min_ready
        return Readiness(is_ready=is_ready, detail=detail)

    def is_settled(self) -> bool:
        """Is every worker learned, or has its time to be reached passed?"""
        return all(
            record.discovered is not None or worker in self._overdue
            for worker, record in self._records.items()
        )

    def model_cards(self) -> Sequence[Mapping[str, object]]:
        """Entries of ``/v1/models``, merged over the workers."""
        found = (record.discovered for record in self._records.values())
        return merged_cards(one for one in found if one is not None)

    def served_by(self, worker: WorkerId) -> Collection[str] | None:
        """Names of models that a worker serves, none where it was never reached; None where it is not listed."""
        record = self._records.get(worker)
        return None if record is None else record.served_names

    def check(self) -> None:
        """Verify the invariants: planner and records agree, and every record is sound."""
        known = {state.spec.worker: state for state in self._brains.planner.workers()}
        learned = {spec.worker: spec for spec in self.specs()}
        assert {name: state.spec for name, state in known.items()} == learned
        assert self._recovered <= learned.keys()
        assert not self._overdue & learned.keys()
        for worker, record in self._records.items():
            record.health.check()
            record.breaker.check()
            if worker in known:
                assert known[worker].excluded_by is record.exclusion, worker
                assert known[worker].is_draining is record.is_draining, worker

    # -- inside ------------------------------------------------------------------------------------

    def _serving(self) -> list[WorkerId]:
        return [one.worker for one in self._records.values() if one.state is WorkerState.SERVING]

    def _take_out(self, record: WorkerRecord) -> None:
        """Forget what was learned of a worker."""
        self._recovered.discard(record.worker)
        if record.spec is not None:
            spec, record.discovered = record.spec, None
            self._forget(spec)
            self._brains.planner.remove_worker(spec.worker)
            self._brains.shelf.keep(self.specs())

    def _settle(self, record: WorkerRecord) -> None:
        """Tell the planner whether the worker takes requests."""
        self._brains.planner.set_excluded(record.worker, record.exclusion)

    def _tell_connections(self, record: WorkerRecord, now: float) -> None:
        """Events out of reach are a gap of their own only where the worker itself answers."""
        brains, is_up = self._brains, record.health.is_healthy
        for source in record.spec.sources if record.spec is not None else ():
            is_connected = brains.intake.is_connected(source) if is_up else None
            brains.index.set_connected(source.rank, now, is_connected=is_connected)
            trouble = brains.intake.replay_trouble(source) if is_up else None
            brains.index.set_replay_trouble(source.rank, trouble)

    def _begin_anew(
        self, record: WorkerRecord, old: WorkerSpec | None, new: WorkerSpec, now: float
    ) -> None:
        if old is None:
            record.since = now
        else:  # readiness waits no longer for one that changes all the time
            self._forget(old)
        self._recovered.discard(record.worker)
        self._brains.index.add_worker(new, now)
        for source in new.sources:
            self._brains.subscriber.subscribe(source)
        if self._brains.bootstrap is not None:
            self._brains.bootstrap.begin(new)

    def _forget(self, spec: WorkerSpec) -> None:
        if self._brains.bootstrap is not None:
            self._brains.bootstrap.cancel(spec.worker)
        for source in spec.sources:
            self._brains.subscriber.unsubscribe(source)
        self._brains.index.remove_worker(spec.worker)
