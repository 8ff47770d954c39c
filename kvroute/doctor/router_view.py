"""What a running router says of its fleet: the workers it has, and what it misses of them. Read only."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kvroute.doctor.check import Check, CheckName, fault, ok, warning
from kvroute.doctor.pages import Page
from router.discovery import is_endpoint
from router.plain_text import plain

WORKERS_PATH = "/debug/workers"
FINDINGS_PATH = "/debug/findings"
_GOOD_STATES = ("serving", "draining")


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Stream(_Model):
    endpoint: str = ""
    replay_endpoint: str | None = None
    is_bound: bool = False


class _Rank(_Model):
    dp_rank: int
    trust: str
    stream: _Stream | None = None


class RoutedWorker(_Model):
    """One worker as the router lists it."""

    worker: str
    url: str
    state: str
    error: str | None = None
    ranks: tuple[_Rank, ...] = ()

    @property
    def is_heard(self) -> bool:
        """Does the router have an event endpoint for it?"""
        return any(rank.stream is not None and rank.stream.endpoint for rank in self.ranks)

    @property
    def is_listened_for(self) -> bool:
        """Does the router listen for it, so that the engine connects?"""
        return any(rank.stream is not None and rank.stream.is_bound for rank in self.ranks)

    @property
    def endpoints(self) -> tuple[tuple[int, str, str | None], ...]:
        """Rank, event endpoint and replay endpoint of those that can be connected to."""
        return tuple(
            (rank.dp_rank, rank.stream.endpoint, rank.stream.replay_endpoint)
            for rank in self.ranks
            if rank.stream is not None
            and is_endpoint(rank.stream.endpoint)
            and not rank.stream.is_bound
        )


class _FindingRank(_Model):
    worker: str
    dp_rank: int


class _Finding(_Model):
    kind: str
    ranks: tuple[_FindingRank, ...] = ()
    evidence: Mapping[str, object] = {}
    advice: str = ""


_WORKERS = TypeAdapter(tuple[RoutedWorker, ...])
_FINDINGS = TypeAdapter(tuple[_Finding, ...])


@dataclass(frozen=True, slots=True)
class RouterView:
    """A router's own view."""

    workers: tuple[RoutedWorker, ...]
    findings: tuple[_Finding, ...]


def read_router(workers: Page, findings: Page) -> RouterView | None:
    """From the two pages of a control port; None where they are not such pages."""
    try:
        return RouterView(
            _WORKERS.validate_json(workers.body if workers.is_there else b""),
            _FINDINGS.validate_json(findings.body if findings.is_there else b""),
        )
    except ValidationError:
        return None


def router_checks(view: RouterView) -> Iterator[Check]:
    """Its findings, its workers that do not serve, and how far it believes the others."""
    name = CheckName.ROUTER
    for worker in view.workers:
        if worker.state not in _GOOD_STATES:
            why = plain(worker.error or "see its own checks")
            yield fault(
                name, f"{worker.worker} is {worker.state}: {why}", "see the worker's checks"
            )
    for finding in view.findings:
        ranks = ", ".join(f"{one.worker}/{one.dp_rank}" for one in finding.ranks[:4])
        if not finding.ranks:
            ranks = f"storage pool {plain(str(finding.evidence.get('pool', '?')))}"
        more = f" and {len(finding.ranks) - 4} more" if len(finding.ranks) > 4 else ""
        yield fault(name, f"finding {finding.kind} on {ranks}{more}", plain(finding.advice))
    trust: dict[str, int] = {}
    for worker in view.workers:
        for rank in worker.ranks:
            trust[rank.trust] = trust.get(rank.trust, 0) + 1
    shown = ", ".join(f"{word} {count}" for word, count in sorted(trust.items())) or "no rank yet"
    text = f"workers: {len(view.workers)}; trust of ranks: {shown}"
    is_low = trust.keys() & {"degraded", "stale", "none"}
    yield warning(name, text) if is_low else ok(name, text)
