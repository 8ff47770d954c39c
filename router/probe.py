"""Calls that the router makes on its own account: learn a worker, ask for its health.

Answers are bounded in size and in time as a whole, and asked for uncompressed. A route that is missing is no fault; a worker that does not answer,
or refuses us, is.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx

from protocol import WorkerId
from router.discovery import (
    Discovered,
    NotAWorkerError,
    WorkerAnswers,
    describe_worker,
    says_asleep,
)
from router.engine_metrics import read_metrics
from router.hops import LOOP_STATUS, Hops

_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class ProbeError(Exception):
    """The worker did not answer, or not as an engine does. The message says how."""


@dataclass(frozen=True, slots=True)
class ProbeTimeouts:
    """Seconds, of one whole call: ``health_s`` for ``/health`` of a worker that is watched."""

    call_s: float = 5.0
    health_s: float = 2.0


class Prober:
    """Probes workers over a client of its own."""

    def __init__(self, client: httpx.AsyncClient, timeouts: ProbeTimeouts) -> None:
        self._client = client
        self._timeouts = timeouts

    async def describe(self, worker: WorkerId, url: str) -> Discovered:
        """Learn the worker behind a URL, in four to nine calls.

        Raises:
            ProbeError: it cannot be reached, is not healthy, or describes no model.
        """
        if await self._get(f"{url}/health") is None:
            raise ProbeError(f"{url}/health does not answer with 2xx")
        models = _parsed(await self._get(f"{url}/v1/models"))
        info = _parsed(await self._get(f"{url}/server_info"))
        if info is None:
            info = _parsed(await self._get(f"{url}/get_server_info"))
        answers = WorkerAnswers(models, info)
        if isinstance(info, dict) and "tokenizer_path" in info:
            answers = await self._sglang(url, answers)
        else:
            answers = await self._vllm(url, answers)
        try:
            return describe_worker(worker, url, answers)
        except NotAWorkerError as error:
            raise ProbeError(str(error)) from error

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
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise ProbeError(f"{url}: {cause_of(error)}") from error

    async def _read(self, url: str) -> bytes | None:
        body = bytearray()
        async with self._client.stream("GET", url) as response:
            if response.status_code in (404, 405, 501):
                return None
            if response.status_code == LOOP_STATUS:
                raise ProbeError(f"{url} leads back to this router, or through too many")
            if not response.is_success:
                raise ProbeError(f"{url} answers {response.status_code}")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES:
                    raise ProbeError(f"{url} answers more than {_MAX_ANSWER_BYTES} bytes")
        return bytes(body)


@asynccontextmanager
async def open_prober(
    timeouts: ProbeTimeouts, token: str | None, hops: Hops
) -> AsyncIterator[Prober]:
    """A prober; ``token`` is sent as bearer token."""
    headers = [(b"Accept-Encoding", b"identity"), hops.field]
    if token is not None:
        headers.append((b"Authorization", f"Bearer {token}".encode()))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(
        timeout=timeouts.call_s, headers=headers, limits=limits, trust_env=False
    ) as client:
        yield Prober(client, timeouts)


def cause_of(error: BaseException) -> str:
    """What the system says of it, where it does: the client's own words hide a refused connection."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno is not None and inner.errno > 0:
            return os.strerror(inner.errno).lower()
        inner = inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__


def _parsed(body: bytes | None) -> object:
    """What a JSON answer says; None where it is none."""
    if body is None:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
