"""What a worker's own description tells, before anything is connected to. Pure.

Source: SGLang 0.4.7 to 0.5.23 and vLLM 0.32.0, their descriptions and what their releases publish.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from indexer.engine_version import are_events_believed
from kvroute.doctor.check import Check, CheckName, fault, ok, unchecked, warning
from kvroute.doctor.flags import SIMULATED_KEY, Dialect, Flags, dialect_of, flags_of
from protocol import EngineKind, EventSource, WorkerSpec
from router.answer_fields import fields_of
from router.discovery import Discovered, WorkerAnswers
from router.plain_text import plain

SILENT_REFILLS = ((0, 5, 17), (0, 5, 20))
"""SGLang releases, from and before, that bring blocks from storage into host memory without an event."""
_WILDCARDS = ("*", "0.0.0.0", "::", "[::]", "")


@dataclass(frozen=True, slots=True)
class Described:
    """A worker's description, as the checks look at it.

    Attributes:
        info: SGLang's ``/server_info``; empty where there is none. A simulated worker's own settings beside.
        event_sources: vLLM's ``/kv_event_sources``; None where there is no such route.
    """

    found: Discovered
    info: Mapping[str, object]
    event_sources: object = None
    has_metrics: bool = False

    @classmethod
    def of(cls, found: Discovered, answers: WorkerAnswers) -> "Described":
        """From what the routes answered."""
        info, version = fields_of(answers.server_info), fields_of(answers.version)
        if SIMULATED_KEY in version:
            info = {**info, SIMULATED_KEY: version[SIMULATED_KEY]}
        return cls(found, info, answers.event_sources, bool(answers.metrics))

    @property
    def spec(self) -> WorkerSpec:
        """The worker as the router takes it."""
        return self.found.spec

    @property
    def dialect(self) -> Dialect:
        """Whose flags it takes."""
        return dialect_of(self.spec, self.info)

    @property
    def flags(self) -> Flags:
        """Its flags."""
        return flags_of(self.dialect)


def described_checks(one: Described) -> Iterator[Check]:
    """Everything that needs no connection."""
    yield _version(one)
    yield _events(one)
    yield from _endpoint(one)
    yield from _ports(one)
    yield from _silent_refills(one)
    yield from _prefix_cache(one)
    yield from _cache_report(one)
    for text in one.found.faults:
        yield warning(CheckName.REACHABLE, f"says what could not be taken: {plain(text)}")
    if one.found.is_asleep:
        yield warning(CheckName.REACHABLE, "sleeps: it gets no requests until somebody wakes it")


def version_numbers(version: str | None) -> tuple[int, ...] | None:
    """Major, minor, patch; None where it has no such form."""
    numbers = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", version or "")
    return None if numbers is None else tuple(int(number or 0) for number in numbers.groups())


def has_silent_refills(spec: WorkerSpec) -> bool:
    """Is it a release that does not announce what comes back from storage?"""
    numbers = version_numbers(spec.version)
    first, fixed = SILENT_REFILLS
    return spec.engine is EngineKind.SGLANG and numbers is not None and first <= numbers[:3] < fixed


def _version(one: Described) -> Check:
    spec, name = one.spec, CheckName.VERSION
    label = f"{spec.engine} {plain(spec.version or '')}".strip()
    if one.dialect is Dialect.SIMULATED:
        return ok(name, f"kvroute worker, as {label}")
    if spec.engine is EngineKind.UNKNOWN:
        return warning(name, "neither SGLang nor vLLM: what it publishes is taken as it comes")
    if version_numbers(spec.version) is None:
        return warning(name, f"{label}: no version is told, so its events are believed")
    if not are_events_believed(spec.engine, spec.version):
        return fault(
            name,
            f"{label}: events before 0.5.15 do not say what the cache holds, and are not believed",
            "upgrade to SGLang 0.5.20 or later",
        )
    return ok(name, label)


def _events(one: Described) -> Check:
    spec, name = one.spec, CheckName.EVENTS
    if not spec.sources:
        if spec.engine is EngineKind.VLLM and one.event_sources is None:
            is_simulated = one.dialect is Dialect.SIMULATED
            ports = "--events-port 5557 --replay-port 5657" if is_simulated else one.flags.events
            return fault(
                name,
                "there is no route /kv_event_sources: where its events are is not told",
                f"{ports}; then name the endpoint in the router's configuration: "
                "workers: [{url: URL, events: {endpoint: tcp://*:5557, replay_endpoint: tcp://*:5657}}]",
            )
        return fault(name, "off: no event endpoint is named", one.flags.events)
    missing = spec.num_ranks - len(spec.sources)
    if missing > 0:
        text = f"{missing} of {spec.num_ranks} ranks name no event endpoint"
        return fault(name, text, one.flags.events)
    return ok(name, f"on, {_ports_text(spec.sources)}")


def _ports_text(sources: tuple[EventSource, ...]) -> str:
    first, last = sources[0].endpoint, sources[-1].endpoint
    return first if first == last else f"{first} to {last.rpartition(':')[2]}"


def _endpoint(one: Described) -> Iterator[Check]:
    """Can the host that is named be another machine's?"""
    host, own = named_host(one), urlsplit(one.spec.url).hostname or ""
    if host is None or host in _WILDCARDS:
        return
    if _is_loopback(host) and not _is_loopback(own):
        yield fault(
            CheckName.ENDPOINT,
            f"names {plain(host)} as host of its events, which is this machine, not {own}",
            one.flags.bind,
        )
    elif host.strip("[]") != own:
        yield warning(
            CheckName.ENDPOINT, f"names {plain(host)} as host of its events, not {own} of its URL"
        )


def named_host(one: Described) -> str | None:
    """The host of the event endpoint as the engine says it; None where it says none."""
    host = fields_of(one.info.get("kv_events")).get("endpoint_host")
    if isinstance(host, str):
        return host
    endpoint = fields_of(fields_of(one.event_sources).get("0")).get("endpoint")
    if isinstance(endpoint, str):
        return endpoint.partition("://")[2].rpartition(":")[0]
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _ports(one: Described) -> Iterator[Check]:
    """Do the ports of events and replays keep clear of each other?"""
    seen: dict[str, str] = {}
    for source in one.spec.sources:
        for kind, endpoint in (("events", source.endpoint), ("replay", source.replay_endpoint)):
            if endpoint is None:
                continue
            what = f"{kind} of rank {source.rank.dp_rank}"
            if endpoint in seen:
                yield fault(
                    CheckName.ENDPOINT,
                    f"{seen[endpoint]} and {what} are both at {endpoint}",
                    "--kv-events-config: ports of endpoint and replay_endpoint further apart than there are ranks",
                )
                return
            seen[endpoint] = what


def _silent_refills(one: Described) -> Iterator[Check]:
    storage = one.info.get("hicache_storage_backend")
    if storage and has_silent_refills(one.spec):
        yield fault(
            CheckName.HOST_TIER,
            f"SGLang {plain(one.spec.version or '')} does not announce what it fetches from storage "
            "into host memory",
            "upgrade to SGLang 0.5.20 or later (or leave out --hicache-storage-backend)",
        )


def _prefix_cache(one: Described) -> Iterator[Check]:
    if one.info.get("disable_radix_cache") is True:
        yield fault(
            CheckName.PREFIX_CACHE, "off: nothing is reused", "leave out --disable-radix-cache"
        )


def _cache_report(one: Described) -> Iterator[Check]:
    if one.dialect is Dialect.VLLM and not one.has_metrics:
        yield warning(
            CheckName.CACHE_REPORT,
            "/metrics is empty: block size, ranks and sleep are not told",
            "leave out --disable-log-stats",
        )
    reports = one.info.get("enable_cache_report")
    if one.dialect is Dialect.SGLANG and reports is False:
        yield warning(
            CheckName.CACHE_REPORT,
            "answers do not say how many prompt tokens were cached, so claims are not checked",
            one.flags.cache_report,
        )
    elif one.dialect is Dialect.VLLM:
        yield unchecked(
            CheckName.CACHE_REPORT,
            f"whether {one.flags.cache_report} is on shows in an answer only (--probe)",
        )
