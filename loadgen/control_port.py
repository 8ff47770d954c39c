"""What a load run reads from the router's control port: decisions, findings, streams, as validated values.

Only what is used is read; the rest of each answer is left alone.
"""

from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from protocol.fault_words import first_fault

T = TypeVar("T")


class ControlPortError(Exception):
    """The control port does not answer, or not in the form that is known here."""


class _View(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RankNameView(_View):
    """A rank by name."""

    worker: str
    dp_rank: int


class CandidateView(_View):
    """One rank as it was weighed."""

    worker: str
    dp_rank: int
    eligible: bool
    excluded_by: str | None
    trust: str
    block_size: int
    gpu_blocks: int
    host_pinned_blocks: int
    storage_blocks: int
    predicted_blocks: int
    observed_blocks: int
    matched_tokens: int
    in_flight: int
    queued_prefill_tokens: int
    terms_ms: dict[str, float]
    cost_ms: float | None
    storage_source: str | None = None


class DecisionView(_View):
    """One decision. A dry run says why it has no tokens, and whether they end before an image."""

    request_id: str
    model: str
    api: str
    policy: str
    prompt_tokens: int | None
    chosen: RankNameView | None
    reason: str
    candidates: tuple[CandidateView, ...]
    excluded: dict[str, int] = {}
    rates: dict[str, str] = {}
    unrouted_by: str | None = None
    is_cut: bool = False

    @property
    def chosen_candidate(self) -> CandidateView | None:
        """The chosen rank as it was weighed."""
        chosen = self.chosen
        if chosen is None:
            return None
        wanted = (chosen.worker, chosen.dp_rank)
        return next((c for c in self.candidates if (c.worker, c.dp_rank) == wanted), None)


class FindingView(_View):
    """One named gap in what the router can know."""

    kind: str
    ranks: tuple[RankNameView, ...] = ()
    evidence: dict[str, int | float | str] = {}
    advice: str = ""


class RankStateView(_View):
    """What the router has made of one rank's events.

    Attributes:
        last_seq: number of the last batch that it applied.
        unknown_removals: by tier, removals of blocks that were not held.
    """

    dp_rank: int
    trust: str
    last_seq: int | None
    unknown_removals: dict[str, int]


class WorkerStateView(_View):
    """One worker as the router knows it."""

    worker: str
    ranks: tuple[RankStateView, ...]


_FINDINGS = TypeAdapter(list[FindingView])
_WORKERS = TypeAdapter(list[WorkerStateView])
_DECISIONS = TypeAdapter(list[DecisionView])
_DECISION = TypeAdapter(DecisionView)


@dataclass(frozen=True, slots=True)
class ControlPort:
    """A router's control port. Every call raises ``ControlPortError`` where it does not answer well."""

    url: str
    session: aiohttp.ClientSession

    async def decisions(self, limit: int) -> list[DecisionView]:
        """The newest decisions, newest first."""
        return _read(_DECISIONS, await self._call("GET", f"/debug/decisions?limit={limit}"))

    async def decision(self, request_id: str) -> DecisionView:
        """One decision."""
        return _read(_DECISION, await self._call("GET", f"/debug/decisions/{request_id}"))

    async def route(self, body: bytes, api: str) -> DecisionView:
        """Where a request would go; nothing is booked."""
        return _read(_DECISION, await self._call("POST", f"/debug/route?api={api}", body))

    async def findings(self) -> list[FindingView]:
        """Every gap that the router knows of."""
        return _read(_FINDINGS, await self._call("GET", "/debug/findings"))

    async def workers(self) -> list[WorkerStateView]:
        """Every worker's ranks and streams."""
        return _read(_WORKERS, await self._call("GET", "/debug/workers"))

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Body of a 200.

        Raises:
            ControlPortError: anything else.
        """
        try:
            async with self.session.request(method, self.url + path, data=body) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ControlPortError(f"{self.url}{path}: {error or type(error).__name__}") from error
        if response.status != 200:
            words = answer.decode(errors="replace")[:200]
            raise ControlPortError(f"{self.url}{path} answers {response.status}: {words}")
        return answer


def _read(adapter: TypeAdapter[T], body: bytes) -> T:
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise ControlPortError(first_fault(error)) from error
