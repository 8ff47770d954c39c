"""Workers as the planner knows them: who serves which model name, and who may not be chosen.

A request's model name is resolved in this order: the name of a model, an alias, an adapter. What a
name means is settled by the first worker that gives it a meaning of that order; workers that mean
another model by it do not serve it. A request that names no model is served by all, where the fleet
serves one model only, or where it is about no model.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from prompt import Api
from protocol import Rank, WorkerId, WorkerSpec
from scoring.capacity import UNBOUNDED, Capacity
from scoring.decision import Exclusion
from scoring.load import LoadBook, RankLoad
from scoring.rank_pin import RankPin, RankPins, rank_pins


class TooManyWorkersError(Exception):
    """The table is full; the worker was not added."""


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """One worker as the planner treats it.

    Attributes:
        excluded_by: why it takes no requests, draining apart; None if it does.
        speed: learned, relative to the engine model; None where nothing was learned.
        num_speed_samples: that the worker itself gave.
    """

    spec: WorkerSpec
    is_draining: bool
    excluded_by: Exclusion | None
    speed: float | None = None
    num_speed_samples: int = 0


class WorkerEntry:
    """A worker in the table, with one row a rank. Each is given ``max_in_flight`` requests at once."""

    __slots__ = ("_pins", "blocked", "excluded", "is_draining", "max_in_flight", "rows", "spec")

    def __init__(self, spec: WorkerSpec) -> None:
        self.max_in_flight = UNBOUNDED  # the table tells it
        self.describe(spec)
        self.is_draining = False
        self.excluded: Exclusion | None = None
        self.blocked: Exclusion | None = None  # why it may not be chosen, draining first
        self.rows: tuple[RankRow, ...] = ()

    def describe(self, spec: WorkerSpec) -> None:
        """Take what the worker is; its rows are the table's business."""
        self.spec = spec
        is_one = spec.num_ranks == 1
        self._pins: RankPins = {} if is_one else rank_pins(spec.engine, spec.version)

    def pin(self, api: str) -> RankPin:
        """How the engine is told which of its ranks serves a request; there is nothing to tell where it has one."""
        return self._pins.get(api, RankPin.HEADER)

    @property
    def longest(self) -> float:
        """Tokens that a prompt may have here; without a bound where that is not known."""
        length = self.spec.max_model_len
        return inf if length is None else length

    @property
    def bound(self) -> int | None:
        """``max_in_flight``; None where there is no bound."""
        return None if self.max_in_flight == UNBOUNDED else self.max_in_flight

    def settle(self) -> None:
        """Work out ``blocked``."""
        self.blocked = Exclusion.DRAINING if self.is_draining else self.excluded


class RankRow:
    """A rank in the table, with what is booked on it."""

    __slots__ = ("book", "entry", "rank")

    def __init__(self, entry: WorkerEntry, rank: Rank) -> None:
        self.entry = entry
        self.rank = rank
        self.book = LoadBook(rank)


class Resolution:
    """What a model name means.

    Attributes:
        model: the model's own name; None where nobody serves the name.
        adapter: the adapter that the name stands for; None if it is not an adapter's.
        rows: ranks that serve it.
    """

    __slots__ = (
        "_everyone",
        "_is_bounded",
        "_others",
        "_ranks",
        "_shortest",
        "_unpinned",
        "adapter",
        "model",
        "rows",
    )

    def __init__(
        self,
        model: str | None,
        adapter: str | None,
        rows: tuple[RankRow, ...],
        everyone: tuple[RankRow, ...],
    ) -> None:
        self.model = model
        self.adapter = adapter
        self.rows = rows
        self._everyone = everyone
        self._others: tuple[RankRow, ...] | None = None
        self._unpinned: frozenset[str] | None = None
        self._ranks: frozenset[Rank] | None = None
        self._shortest: float | None = None
        self._is_bounded: bool | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether some of the ranks are given no more than so many requests at once. O(ranks) at first."""
        if self._is_bounded is None:
            self._is_bounded = any(row.entry.bound is not None for row in self.rows)
        return self._is_bounded

    def has_unpinned(self, api: str) -> bool:
        """Whether some of the ranks cannot be told to an engine with a request of this API. O(ranks) at first."""
        if self._unpinned is None:
            entries = {row.entry for row in self.rows}
            self._unpinned = frozenset(
                name for name in Api for one in entries if one.pin(name) is RankPin.NONE
            )
        return api in self._unpinned

    @property
    def num_others(self) -> int:
        """Number of all other ranks."""
        return len(self._everyone) - len(self.rows)

    @property
    def ranks(self) -> frozenset[Rank]:
        """Those of ``rows``, always the same set. O(ranks) when first asked for."""
        if self._ranks is None:
            self._ranks = frozenset(row.rank for row in self.rows)
        return self._ranks

    @property
    def shortest(self) -> float:
        """Tokens that a prompt may have on every rank, as far as is known. O(ranks) when first asked for."""
        if self._shortest is None:
            self._shortest = min((row.entry.longest for row in self.rows), default=inf)
        return self._shortest

    @property
    def others(self) -> tuple[RankRow, ...]:
        """All other ranks. O(ranks of the fleet) when first asked for."""
        if self._others is None:
            serving = set(self.rows)
            self._others = tuple(row for row in self._everyone if row not in serving)
        return self._others

    def narrowed(self, adapter: str, rows: tuple[RankRow, ...]) -> "Resolution":
        """The same model for an adapter that these rows have."""
        return Resolution(self.model, adapter, rows, self._everyone)


class WorkerTable:
    """All workers. Lookups are O(1) after a change, which costs O(ranks × names of each) once."""

    def __init__(self, max_workers: int = 1_024) -> None:
        self._max_workers = max_workers
        self._capacity = Capacity()
        self._entries: dict[WorkerId, WorkerEntry] = {}
        self._names: dict[str | None, Resolution] | None = None
        self._nobody = Resolution(None, None, (), ())

    def bound(self, capacity: Capacity) -> None:
        """Give each rank no more than this at once."""
        self._capacity = capacity
        for entry in self._entries.values():
            entry.max_in_flight = capacity.of(entry.spec)
        self._names = None

    def add(self, spec: WorkerSpec) -> None:
        """Add a worker, or take what changed about one that is known; its load is kept.

        Raises:
            TooManyWorkersError: the worker is new and the table full.
        """
        entry = self._entries.get(spec.worker)
        if entry is None:
            if len(self._entries) >= self._max_workers:
                raise TooManyWorkersError(f"at most {self._max_workers} workers")
            entry = self._entries[spec.worker] = WorkerEntry(spec)
        known = {row.rank: row for row in entry.rows}
        entry.describe(spec)
        entry.max_in_flight = self._capacity.of(spec)
        entry.rows = tuple(known.get(rank) or RankRow(entry, rank) for rank in spec.ranks)
        self._names = None

    def remove(self, worker: WorkerId) -> WorkerEntry | None:
        """Remove a worker; the entry that was there."""
        self._names = None
        return self._entries.pop(worker, None)

    def entry(self, worker: WorkerId) -> WorkerEntry | None:
        """The worker's entry."""
        return self._entries.get(worker)

    def entries(self) -> Iterable[WorkerEntry]:
        """All workers, in the order in which they came."""
        return self._entries.values()

    def rows(self) -> list[RankRow]:
        """All ranks."""
        return [row for entry in self._entries.values() for row in entry.rows]

    def loads(self, now: float) -> list[RankLoad]:
        """What every rank is busy with."""
        return [row.book.load(now, row.entry.bound) for row in self.rows()]

    def has(self, row: RankRow) -> bool:
        """Whether the row is still in the table (and not another one under the same name)."""
        entry = self._entries.get(row.rank.worker)
        return entry is row.entry and row in entry.rows

    def models(self) -> list[str]:
        """Names of the models that the fleet serves, sorted."""
        return sorted({entry.spec.model for entry in self._entries.values()})

    def served_names(self) -> list[str]:
        """Every name that a request may use: models, aliases and adapters, sorted."""
        return sorted(name for name in self._resolved() if name is not None)

    def resolve(self, name: str | None, adapter: str | None = None) -> Resolution:
        """Who serves a model name; with ``adapter``, only workers that have it if any lists it.

        A name that stands for an adapter goes before ``adapter``, as in SGLang.
        """
        found = self._resolved().get(name, self._nobody)
        if adapter is None or found.adapter is not None:
            return found
        having = [row for row in found.rows if adapter in row.entry.spec.adapters]
        return found.narrowed(adapter, tuple(having) or found.rows)

    def everyone(self) -> Resolution:
        """All ranks, whatever they serve: for requests that are about no model."""
        rows = tuple(self.rows())
        return Resolution(None, None, rows, rows)

    def _resolved(self) -> dict[str | None, Resolution]:
        if self._names is None:
            everyone = tuple(self.rows())
            self._names = self._resolve_all(everyone)
            self._nobody = Resolution(None, None, (), everyone)
        return self._names

    def _resolve_all(self, everyone: tuple[RankRow, ...]) -> dict[str | None, Resolution]:
        names: dict[str | None, Resolution] = {}
        for names_of in _MEANINGS:
            meanings: dict[str, tuple[str, str | None, list[WorkerEntry]]] = {}
            for entry in self._entries.values():
                for name, adapter in names_of(entry.spec).items():
                    meaning = meanings.setdefault(name, (entry.spec.model, adapter, []))
                    model, _, entries = meaning
                    if model == entry.spec.model:
                        entries.append(entry)
            for name, (model, adapter, entries) in meanings.items():
                if name not in names:
                    rows = tuple(row for entry in entries for row in entry.rows)
                    names[name] = Resolution(model, adapter, rows, everyone)
        models = self.models()
        if len(models) == 1:
            names[None] = Resolution(models[0], None, everyone, everyone)
        return names

    def check(self) -> None:
        """Verify that entries, rows and names agree."""
        assert len(self._entries) <= self._max_workers, len(self._entries)
        for worker, entry in self._entries.items():
            assert entry.spec.worker == worker, (worker, entry.spec)
            assert tuple(row.rank for row in entry.rows) == entry.spec.ranks, (worker, entry.spec)
            assert all(row.entry is entry and row.book.rank == row.rank for row in entry.rows)
            assert entry.max_in_flight == self._capacity.of(entry.spec) > 0, worker
            assert entry.blocked is (Exclusion.DRAINING if entry.is_draining else entry.excluded), (
                worker
            )
        rows = set(self.rows())
        for name, found in self._resolved().items():
            assert found.model is not None, name
            assert set(found.rows) | set(found.others) == rows, name
            assert len(found.rows) + found.num_others == len(rows), name
            assert not set(found.rows) & set(found.others), name


def _own_name(spec: WorkerSpec) -> Mapping[str, str | None]:
    return {spec.model: None}


def _aliases(spec: WorkerSpec) -> Mapping[str, str | None]:
    return dict.fromkeys(spec.aliases)


def _adapters(spec: WorkerSpec) -> Mapping[str, str | None]:
    return dict(spec.adapter_names)


_MEANINGS: tuple[Callable[[WorkerSpec], Mapping[str, str | None]], ...] = (
    _own_name,
    _aliases,
    _adapters,
)
"""What a name may be, first meaning first: each with the adapter that it stands for."""
