"""One worker, looked at from all sides within a bounded time: what was found until then is kept."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kvroute.doctor.check import Check, CheckName, Status, fault, ok, unchecked, warning
from kvroute.doctor.described import Described, described_checks
from kvroute.doctor.ear import EarTimes, LivePart, listen_to
from kvroute.doctor.heard_checks import heard_checks
from kvroute.doctor.hearing import Hearing
from kvroute.doctor.pages import Page, Pages
from kvroute.doctor.parity import compare, own_tokens, parity_check, tokenizes
from kvroute.doctor.probing import Probed, probe_body, probe_checks, send
from kvroute.doctor.report import Report
from prompt import Api, PromptModel
from protocol import EventSource, Rank, WorkerId
from router.discovery import Discovered, NotAWorkerError, WorkerAnswers, describe_worker
from router.plain_text import plain
from router.shelf import PromptShelf, Shelved

PATHS = (
    "/health",
    "/v1/models",
    "/server_info",
    "/get_server_info",
    "/version",
    "/kv_event_sources",
    "/metrics",
    "/is_sleeping",
    "/is_paused",
)
_OF_DATA_PORT = "x-kvroute-worker"
_ALIKE = "go where alike ones went"
_INSTEAD = {
    (True, True): "a router asks the engine for each prompt's tokens (/tokenize)",
    (True, False): f"a router asks the engine for texts' tokens (/tokenize), and chats {_ALIKE}",
}
"""By whether the engine tokenizes texts, and chats."""
_OTHERWISE = f"prompts that are no token ids {_ALIKE}"
_ORDER = {name: place for place, name in enumerate(CheckName)}


@dataclass(frozen=True, slots=True)
class VisitOptions:
    """How a worker is looked at.

    Attributes:
        bound_s: of the whole visit.
        page_s: of one call.
        rest_s: after a probe, at most, until an event is heard: engines publish up to 40 decode steps later.
        nonce: what a prompt of ours begins with; None = no request is sent that generates anything.
    """

    bound_s: float = 20.0
    page_s: float = 5.0
    times: EarTimes = field(default_factory=EarTimes)
    rest_s: float = 1.0
    nonce: str | None = None


class Visit:
    """One visit of one worker.

    Args:
        executor: loads tokenizers.
    """

    def __init__(
        self,
        report: Report,
        pages: Pages,
        shelf: PromptShelf,
        executor: Executor,
        options: VisitOptions,
    ) -> None:
        self.report = report
        self._pages = pages
        self._shelf = shelf
        self._executor = executor
        self._options = options

    async def run(self) -> None:
        """Fill the report; never longer than the bound."""
        try:
            async with asyncio.timeout(self._options.bound_s):
                await self._examine()
        except TimeoutError:
            text = (
                f"not done within {self._options.bound_s:g} s; what was found until then is shown"
            )
            change = "look whether the engine hangs, or give more time: --timeout-s"
            self._add(fault(CheckName.REACHABLE, text, change))
        self.report.checks.sort(key=lambda check: _ORDER[check.name])

    async def _examine(self) -> None:
        answered = await self._pages.get_all(PATHS)
        if not self._is_worker(answered):
            return
        found = self._describe(answered)
        if found is None:
            return
        self.report.spec = found.spec
        one = Described.of(found, _answers(answered))
        self._add(ok(CheckName.REACHABLE, f"serves {plain(found.spec.model)}"))
        self.report.checks += self._weigh(described_checks(one))
        async with asyncio.TaskGroup() as group:
            live = LivePart()
            listening = group.create_task(listen_to(found.spec.sources, self._options.times, live))
            talking = group.create_task(self._talk(found, live))
        hearings = listening.result()
        self.report.checks += heard_checks(one, hearings, answered["/health"].ahead_s)
        self._judge(one, hearings, talking.result())

    def _weigh(self, checks: Iterable[Check]) -> Iterator[Check]:
        """What the engine does not name is no fault where its router was told otherwise."""
        for check in checks:
            is_off = check.name is CheckName.EVENTS and check.status is Status.FAULT
            if self.report.is_listened_for and check.name is CheckName.EVENTS:
                text = "the router listens there: the engine connects, and only the router hears it"
                yield unchecked(CheckName.EVENTS, text)
            elif self.report.is_listened_for and check.name is CheckName.ENDPOINT:
                continue  # the host that the engine names is the router's
            elif is_off and self.report.is_heard:
                text = "the engine names no endpoint to connect to; its router was told of one"
                yield unchecked(CheckName.EVENTS, text)
            else:
                yield check

    def _is_worker(self, answered: Mapping[str, Page]) -> bool:
        """Does it answer at all, and not as a router's data port?"""
        health = answered["/health"]
        if health.status is None:
            change = "start the engine, or name the URL that this machine reaches it at"
            if "certificate is not trusted" in health.fault:
                change = "name who vouches for it: --ca-file (worker_tls.ca_file of the router)"
            self._add(fault(CheckName.REACHABLE, plain(health.fault), change))
            return False
        if any(_OF_DATA_PORT in page.headers for page in answered.values()):
            text = (
                "this is the data port of a router, behind which every call may meet another worker"
            )
            self._add(
                fault(CheckName.REACHABLE, text, "name the router's control port, or the worker")
            )
            return False
        if not health.is_there:
            text = f"/health {plain(health.shown)}"
            self._add(fault(CheckName.REACHABLE, text, "look into the engine's log"))
        for page in answered.values():
            if page.fault:
                self._add(warning(CheckName.REACHABLE, plain(page.fault)))
        return True

    def _describe(self, answered: Mapping[str, Page]) -> Discovered | None:
        worker = WorkerId(self.report.name)
        try:
            found = describe_worker(worker, self.report.url, _answers(answered))
        except NotAWorkerError as error:
            change = "name an engine that serves whole requests"
            if any(page.status in (401, 403) for page in answered.values()):
                change = "give its key: --worker-token or KVROUTE_WORKER_TOKEN"
            self._add(fault(CheckName.REACHABLE, plain(str(error)), change))
            return None
        if self.report.is_listened_for:
            return replace(found, spec=replace(found.spec, sources=()))
        if found.spec.sources or not self.report.endpoints:
            return found
        sources = tuple(
            EventSource(Rank(worker, dp_rank), endpoint, replay)
            for dp_rank, endpoint, replay in self.report.endpoints
        )
        return replace(found, spec=replace(found.spec, sources=sources))

    async def _talk(self, found: Discovered, live: LivePart) -> Probed | None:
        """What needs the tokenizer: parity, and the probe where one is allowed."""
        loop = asyncio.get_running_loop()
        shelved = await loop.run_in_executor(self._executor, self._shelf.load, found.spec)
        self._tokenizer(shelved)
        if shelved.model is None:
            self._without_tokenizer(shelved, await tokenizes(self._pages, found.spec.model))
            self._add(unchecked(CheckName.PARITY, "there is no tokenizer here to compare with"))
        else:
            model = shelved.model.for_engines({found.spec.engine})
            self._add(parity_check(await compare(self._pages, model, found.spec.model)))
        probed = None
        if self._options.nonce is not None:
            await live.has_begun.wait()
            body = probe_body(found.spec.model, self._options.nonce)
            own = _num_tokens(shelved.model, body)
            has_ranks = found.spec.num_ranks > 1
            probed = await send(self._pages, body, own, has_ranks=has_ranks)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.rest_s):
                    await live.has_heard.wait()
        live.may_end.set()
        return probed

    def _tokenizer(self, shelved: Shelved) -> None:
        if shelved.model is None:
            return
        where = f"{plain(shelved.directory or '')} ({shelved.rung})"
        change = "kvroute serve --tokenizer MODEL=DIR (and here) with a directory that can be used"
        if shelved.detail is None:
            self._add(ok(CheckName.TOKENIZER, where))
        else:
            text = f"{where}, in place of another: {plain(shelved.detail)}"
            self._add(warning(CheckName.TOKENIZER, text, change))

    def _without_tokenizer(self, shelved: Shelved, taken: tuple[bool, bool]) -> None:
        """What a router goes by instead, unless it is configured not to."""
        text = f"none here: {plain(shelved.detail or '')}; {_INSTEAD.get(taken, _OTHERWISE)}"
        change = "kvroute serve --tokenizer MODEL=DIR (and here)"
        self._add(warning(CheckName.TOKENIZER, text, change))

    def _judge(self, one: Described, hearings: list[Hearing], probed: Probed | None) -> None:
        if probed is not None:
            kept = [
                check for check in self.report.checks if check.name is not CheckName.CACHE_REPORT
            ]
            num_live: int | None = sum(hearing.num_live for hearing in hearings)
            if not hearings and self.report.is_heard:
                num_live = None
            self.report.checks[:] = [*kept, *probe_checks(probed, num_live, one.flags)]

    def _add(self, check: Check) -> None:
        self.report.checks.append(check)


def _answers(answered: Mapping[str, Page]) -> WorkerAnswers:
    info = answered["/server_info"]
    return WorkerAnswers(
        models=answered["/v1/models"].json,
        server_info=info.json if info.is_there else answered["/get_server_info"].json,
        version=answered["/version"].json,
        event_sources=answered["/kv_event_sources"].json,
        metrics=answered["/metrics"].text,
        is_sleeping=answered["/is_sleeping"].json,
        is_paused=answered["/is_paused"].json,
    )


def _num_tokens(model: PromptModel | None, body: Mapping[str, object]) -> int | None:
    tokens = None if model is None else own_tokens(model, Api.CHAT, body)
    return None if tokens is None else len(tokens)
