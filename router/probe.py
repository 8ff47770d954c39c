"""Calls that the router makes on its own account: learn a worker, ask for its health.

They go the way of requests, over connections of their own that are not kept. Answers are bounded in size and in
time as a whole, and asked for uncompressed. A route that is missing is no fault; a worker that does not answer,
or refuses us, is.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from protocol import WorkerId
from router.answer_fields import fields_of
from router.dialer import Dialer
from router.discovery import (
    Discovered,
    NotAWorkerError,
    PartialEngineError,
    WorkerAnswers,
    describe_worker,
    is_sglang,
    says_asleep,
)
from router.engine_metrics import read_metrics
from router.headers import RawHeader
from router.hops import LOOP_STATUS, Hops
from router.reach import Reach
from router.upstream import Upstream, UpstreamError, UpstreamTimeouts, open_upstream

_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class ProbeError(Exception):
    """The worker did not answer, or not as an engine does. The message says how."""


class PartialWorkerError(ProbeError):
    """It answered, and says that it does a part of the work only."""


@dataclass(frozen=True, slots=True)
class ProbeTimeouts:
    """Seconds, of one whole call: ``health_s`` for ``/health`` of a worker that is watched."""

    call_s: float = 5.0
    health_s: float = 2.0


class Prober:
    """Probes workers over a client of its own.

    Args:
        headers: sent with every call.
        reach: takes away the event endpoints that may not be reached; None for none.
    """

    def __init__(
        self,
        upstream: Upstream,
        headers: Sequence[RawHeader],
        timeouts: ProbeTimeouts,
        reach: Reach | None = None,
    ) -> None:
        self._reach = reach
        self._upstream = upstream
        self._headers = headers
        self._timeouts = timeouts

    async def describe(self, worker: WorkerId, url: str) -> Discovered:
        """Learn the worker behind a URL, in four to ten calls.

        Raises:
            PartialWorkerError: it does a part of the work only.
            ProbeError: it cannot be reached, is not healthy, or describes no model.
        """
        if await self._get(f"{url}/health") is None:
            hint = "; a worker's URL is without /v1" if url.endswith("/v1") else ""
            raise ProbeError(f"{url}/health is not there{hint}")
        models = _parsed(await self._get(f"{url}/v1/models"))
        info = _parsed(await self._get(f"{url}/server_info"))
        if info is None:
            info = _parsed(await self._get(f"{url}/get_server_info"))
        answers = WorkerAnswers(models, info)
        if is_sglang(info):
            answers = await self._sglang(url, answers)
        else:
            answers = await self._vllm(url, answers)
        try:
            found = describe_worker(worker, url, answers)
        except PartialEngineError as error:
            raise PartialWorkerError(str(error)) from error
        except NotAWorkerError as error:
            raise ProbeError(str(error)) from error
        return found if self._reach is None else self._reach.reachable(found)

    async def why_partial(self, url: str) -> str | None:
        """Why the engine cannot serve whole requests; None where it can, or does not tell as soon as a probe."""
        try:
            async with asyncio.timeout(self._timeouts.health_s):
                await self.describe(WorkerId(url), url)
        except PartialWorkerError as error:
            return str(error)
        except (ProbeError, TimeoutError):
            return None
        return None

    async def why_unhealthy(self, url: str) -> str | None:
        """Why ``/health`` did not answer with 2xx, and soon; None where it did."""
        try:
            body = await self._get(f"{url}/health", self._timeouts.health_s)
        except ProbeError as error:
            return str(error)
        return f"{url}/health is not there" if body is None else None

    async def is_asleep(self, url: str) -> bool | None:
        """Whether the worker says that it sleeps or is paused; None where it does not say.

        Its metrics, which are long, are read only where it has no routes for it.
        """
        sleeping, paused = await self._optional(url, "is_sleeping", "is_paused")
        if sleeping is not None or paused is not None:
            return says_asleep(sleeping, paused)
        try:
            metrics = read_metrics(await self._metrics(url) or "")
        except ProbeError:
            return None
        return metrics.is_asleep if metrics.tells_sleep else None

    async def _sglang(self, url: str, known: WorkerAnswers) -> WorkerAnswers:
        try:
            return replace(known, metrics=await self._metrics(url))
        except ProbeError:
            return known  # it tells nothing there that is needed

    async def _vllm(self, url: str, known: WorkerAnswers) -> WorkerAnswers:
        sleeping, paused = await self._optional(url, "is_sleeping", "is_paused")
        if "vllm_config" in fields_of(known.server_info):  # as text, which does not tell all
            (told,) = await self._optional(url, "server_info?config_format=json")
            known = replace(known, server_info=told or known.server_info)
        return replace(
            known,
            metrics=await self._metrics(url),
            version=_parsed(await self._get(f"{url}/version")),
            event_sources=_parsed(await self._get(f"{url}/kv_event_sources")),
            is_sleeping=sleeping,
            is_paused=paused,
        )

    async def _metrics(self, url: str) -> str | None:
        metrics = await self._get(f"{url}/metrics")
        return None if metrics is None else metrics.decode("utf-8", "replace")

    async def _optional(self, url: str, *routes: str) -> list[object]:
        """What each route answers, parsed; None where it does not, for whatever reason."""
        answers: list[object] = []
        for route in routes:
            try:
                answers.append(_parsed(await self._get(f"{url}/{route}", self._timeouts.health_s)))
            except ProbeError:
                answers.append(None)
        return answers

    async def _get(self, url: str, timeout_s: float | None = None) -> bytes | None:
        """The body of a 2xx answer; None where there is no such route.

        Raises:
            ProbeError: no answer, another status, or one that is too large.
        """
        bound_s = self._timeouts.call_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(bound_s):
                return await self._read(url)
        except TimeoutError as error:
            raise ProbeError(f"{url}: no whole answer within {bound_s:g} s") from error
        except UpstreamError as error:
            raise ProbeError(f"{url}: {error.detail}") from error
        except ValueError as error:
            raise ProbeError(f"{url}: {error}") from error

    async def _read(self, url: str) -> bytes | None:
        body = bytearray()
        answer = await self._upstream.send("GET", url, self._headers, b"")
        try:
            if answer.status in (404, 405, 501):
                return None
            if answer.status == LOOP_STATUS:
                raise ProbeError(f"{url} leads back to this router, or through too many")
            if not 200 <= answer.status < 300:
                raise ProbeError(f"{url} answers {answer.status}")
            while not answer.is_complete:
                body += await answer.read()
                if len(body) > _MAX_ANSWER_BYTES:
                    raise ProbeError(f"{url} answers more than {_MAX_ANSWER_BYTES} bytes")
        finally:
            answer.close()
        return bytes(body)


@asynccontextmanager
async def open_prober(
    timeouts: ProbeTimeouts,
    token: str | None,
    hops: Hops,
    dialer: Dialer | None = None,
    reach: Reach | None = None,
) -> AsyncIterator[Prober]:
    """A prober.

    Args:
        token: sent as bearer token.
        dialer: the one that requests use, so that a worker which is well can be reached by them.
        reach: takes away the event endpoints that may not be reached; None for none.
    """
    headers = [(b"Accept", b"*/*"), (b"Accept-Encoding", b"identity"), hops.field]
    if token is not None:
        headers.append((b"Authorization", f"Bearer {token}".encode()))
    limits = UpstreamTimeouts(timeouts.call_s, timeouts.call_s, timeouts.call_s)
    async with open_upstream(limits, dialer, max_idle=0) as upstream:
        yield Prober(upstream, headers, timeouts, reach)


def _parsed(body: bytes | None) -> object:
    """What a JSON answer says; None where it is none."""
    if body is None:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
