"""From what each proxy was found to spend to the rows of the data plane, their ratios and their targets."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isnan

from benchmarks.chat_requests import STREAM_CHUNKS
from benchmarks.measurement import Measurement, measured, not_available

FULL = ("direct", "kvroute", "smg", "envoy")
"""Names that have a row of every kind, available or not."""


@dataclass(slots=True)
class Found:
    """Figures by proxy and load, one a round; and why proxies have none.

    A proxy that is lost has no figure at all, not even of the rounds before.
    """

    runs: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def add(self, proxy: str, load: str, value: float) -> None:
        """One more round."""
        self.runs.setdefault((proxy, load), []).append(value)

    def of(self, proxy: str, load: str) -> list[float]:
        """All rounds."""
        return self.runs[proxy, load]


@dataclass(frozen=True, slots=True)
class Kind:
    """A row that several proxies have: suffix of its name, unit, and the load it is read from."""

    suffix: str
    unit: str
    load: str


KINDS = (
    Kind("2k_ms", "ms CPU/request", "2k"),
    Kind("32k_ms", "ms CPU/request", "32k"),
    Kind("200k_ms", "ms CPU/request", "200k"),
    Kind("200k_first_ms", "ms CPU/request", "200k_first"),
    Kind("chunk_us", "µs CPU/chunk", "chunk"),
    Kind("stream300_ms", "ms CPU/answer", "many"),
    Kind("added_p50_ms", "ms waited", "p50"),
    Kind("added_p99_ms", "ms waited", "p99"),
)
BARE = ("2k_ms", "chunk_us", "stream300_ms")
"""Kinds of the baseline that passes everything on."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a row is hoped to be at most: ``most`` in its unit, or as many times a peer's row."""

    row: str
    most: float
    peer: str | None = None


TARGETS = (
    Target("kvroute_2k_ms", 1.25, "smg_2k_ms"),
    Target("kvroute_200k_ms", 1.5, "smg_200k_ms"),
    Target("kvroute_200k_first_ms", 2.5),
    Target("kvroute_chunk_us", 1.25, "smg_chunk_us"),
    Target("kvroute_added_p50_ms", 0.35),
)


def table(found: Found) -> list[Measurement]:
    """All rows: the proxies' one after the other, then the router's own."""
    rows = [_row("bare", kind, found) for kind in KINDS if kind.suffix in BARE]
    rows += [_row(name, kind, found) for name in FULL for kind in KINDS]
    rows += _own_rows(found)
    by_name = {row.name: row for row in rows}
    return [_aimed(_compared(row, by_name), by_name) for row in rows]


def _row(name: str, kind: Kind, found: Found) -> Measurement:
    if name in found.lost:
        return not_available(f"{name}_{kind.suffix}", kind.unit, found.lost[name])
    return measured(f"{name}_{kind.suffix}", kind.unit, _runs(name, kind.load, found))


def _runs(name: str, load: str, found: Found) -> Sequence[float]:
    """A load's figures, or what is reckoned from two of them."""
    if load == "chunk":
        return chunk_us(found.of(name, "one"), found.of(name, "many"))
    if load in ("p50", "p99") and name != "direct":
        waits = zip(found.of(name, load), found.of("direct", load), strict=True)
        return [proxied - direct for proxied, direct in waits]
    return found.of(name, load)


def chunk_us(answers_of_one: list[float], answers_of_many: list[float]) -> list[float]:
    """What the events beyond the first cost, each."""
    pairs = zip(answers_of_one, answers_of_many, strict=True)
    return [(many - one) / (STREAM_CHUNKS - 1) * 1e3 for one, many in pairs]


def _own_rows(found: Found) -> list[Measurement]:
    unit = "ms CPU/request"
    return [
        measured("kvroute_200k_notok_ms", unit, found.of("kvroute", "200k_notok")),
        measured("kvroute_notok_2k_ms", unit, found.of("kvroute", "notok_2k")),
        measured("kvroute_hf_2k_ms", unit, found.of("kvroute_hf", "2k")),
    ]


def _peers_of(name: str) -> list[str]:
    """Rows that a row of the router stands beside: the same of the baseline and of the peers."""
    match name:
        case "kvroute_notok_2k_ms" | "kvroute_hf_2k_ms":
            suffix = "2k_ms"
        case "kvroute_200k_notok_ms":
            suffix = "200k_ms"
        case _:
            suffix = name.removeprefix("kvroute_")
    return [f"{peer}_{suffix}" for peer in ("bare", "smg", "envoy")]


def _compared(row: Measurement, by_name: dict[str, Measurement]) -> Measurement:
    """With its ratios, where it is the router's and the peers have figures above 0."""
    if not row.name.startswith("kvroute_"):
        return row
    peers = [by_name[name] for name in _peers_of(row.name) if name in by_name]
    ratios = [(peer.name, row.value / peer.value) for peer in peers if peer.value > 0]
    if not ratios:
        return row
    (peer, ratio), *more = ratios
    return replace(row, peer=peer, ratio=ratio, more_ratios=tuple(more))


def _aimed(row: Measurement, by_name: dict[str, Measurement]) -> Measurement:
    """With its target, where it has one and the peer it is set by has a figure."""
    for target in TARGETS:
        if target.row == row.name:
            scale = 1.0 if target.peer is None else by_name[target.peer].value
            return row if isnan(scale) else replace(row, target=target.most * scale)
    return row
