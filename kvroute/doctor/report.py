"""All that was found, as values: one report a worker, one for the fleet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvroute.doctor.check import Check, Status, num_of
from protocol import WorkerSpec


@dataclass(slots=True)
class Report:
    """One worker, or a router.

    Attributes:
        spec: as it describes itself; None where it does not.
        endpoints: rank, event endpoint and replay endpoint as a router has them, for a worker that does not
            tell its own.
        is_heard: a router has event endpoints for it.
        is_listened_for: they are the router's, and the engine connects to them.
    """

    name: str
    url: str
    spec: WorkerSpec | None = None
    checks: list[Check] = field(default_factory=list)
    endpoints: tuple[tuple[int, str, str | None], ...] = ()
    is_heard: bool = False
    is_listened_for: bool = False

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        spec = self.spec
        return {
            "worker": self.name,
            "url": self.url,
            "engine": spec and spec.engine.value,
            "version": spec and spec.version,
            "model": spec and spec.model,
            "num_ranks": spec and spec.num_ranks,
            "block_size": spec and spec.block_size,
            "checks": [_check_json(one) for one in self.checks],
        }


@dataclass(frozen=True, slots=True)
class Examination:
    """A whole fleet."""

    workers: Sequence[Report]
    routers: Sequence[Report] = ()
    fleet: Sequence[Check] = ()

    @property
    def checks(self) -> Iterator[Check]:
        """Every check of everybody."""
        for one in (*self.routers, *self.workers):
            yield from one.checks
        yield from self.fleet

    @property
    def num_faults(self) -> int:
        """How many of them are faults."""
        return num_of(self.checks, Status.FAULT)

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        return {
            "faults": self.num_faults,
            "warnings": num_of(self.checks, Status.WARNING),
            "workers": [one.to_json() for one in self.workers],
            "routers": [one.to_json() for one in self.routers],
            "fleet": [_check_json(one) for one in self.fleet],
        }


def _check_json(one: Check) -> dict[str, object]:
    return {
        "check": one.name,
        "status": one.status,
        "text": one.text,
        "change": one.change or None,
        "evidence": dict(one.evidence),
    }
