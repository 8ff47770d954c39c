"""What the doctor says: one value a thing that was looked at."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How it stands, from good to bad; UNCHECKED: it could not be looked at."""

    OK = "ok"
    UNCHECKED = "unchecked"
    WARNING = "warning"
    FAULT = "fault"


class CheckName(StrEnum):
    """Everything that is looked at."""

    REACHABLE = "reachable"
    VERSION = "version"
    EVENTS = "events"
    ENDPOINT = "endpoint"
    RANKS = "ranks"
    REPLAY = "replay"
    TOPIC = "topic"
    PUBLISHERS = "publishers"
    PAYLOADS = "payloads"
    BLOCK_SIZE = "block_size"
    HOST_TIER = "host_tier"
    CLOCK = "clock"
    PREFIX_CACHE = "prefix_cache"
    CACHE_REPORT = "cache_report"
    TOKENIZER = "tokenizer"
    PARITY = "parity"
    PROBE = "probe"
    MODEL = "model"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing and how it stands.

    Attributes:
        text: what was seen.
        change: what to change, the engine's flag by name; empty where nothing is.
        evidence: what was measured, by name.
    """

    name: CheckName
    status: Status
    text: str
    change: str = ""
    evidence: Mapping[str, object] = field(default_factory=dict)


def ok(name: CheckName, text: str, **evidence: object) -> Check:
    """It is as it should be."""
    return Check(name, Status.OK, text, evidence=evidence)


def unchecked(name: CheckName, text: str) -> Check:
    """It could not be looked at."""
    return Check(name, Status.UNCHECKED, text)


def warning(name: CheckName, text: str, change: str = "", **evidence: object) -> Check:
    """Routing works, with less knowledge or more care than it could."""
    return Check(name, Status.WARNING, text, change, evidence)


def fault(name: CheckName, text: str, change: str, **evidence: object) -> Check:
    """Routing by what is cached does not work as it should."""
    return Check(name, Status.FAULT, text, change, evidence)


def num_of(checks: Iterable[Check], status: Status) -> int:
    """How many stand so."""
    return sum(check.status is status for check in checks)
