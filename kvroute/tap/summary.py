"""What a tap heard, in numbers. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from kvroute.tap.heard import Batch, Heard, Note, NoteKind


@dataclass(slots=True)
class Summary:
    """Counts of one run, over all sources."""

    num_events: int = 0
    num_batches: int = 0
    num_replayed: int = 0
    ranks: set[tuple[str, int]] = field(default_factory=set)
    notes: Counter[NoteKind] = field(default_factory=Counter)
    num_missing: int = 0
    num_lags: int = 0
    lag_sum_s: float = 0.0
    lag_max_s: float | None = None

    @property
    def was_connected(self) -> bool:
        """Was there ever a connection?"""
        return self.notes[NoteKind.CONNECTED] > 0

    def add(self, worker: str, heard: Heard) -> None:
        """Something was heard."""
        if isinstance(heard, Note):
            self.notes[heard.kind] += 1
            if heard.missing is not None:
                self.num_missing += heard.missing[1] - heard.missing[0] + 1
            return
        self._add_batch(worker, heard)

    def _add_batch(self, worker: str, heard: Batch) -> None:
        self.num_batches += 1
        self.num_events += len(heard.batch.events)
        self.num_replayed += heard.is_replayed
        self.ranks.add((worker, heard.dp_rank))
        if heard.lag_s is not None:
            self.num_lags += 1
            self.lag_sum_s += heard.lag_s
            self.lag_max_s = max(heard.lag_s, self.lag_max_s or heard.lag_s)

    @property
    def lag_mean_s(self) -> float | None:
        """Publication to hearing, mean of the live batches with a clock; None without any."""
        return self.lag_sum_s / self.num_lags if self.num_lags else None

    def line(self, seconds: float) -> str:
        """In one sentence."""
        events = _counted(self.num_events, "event")
        batches = _counted(self.num_batches, "batch", "es")
        ranks = _counted(len(self.ranks), "rank")
        found = [f"{events} in {batches} of {ranks} in {seconds:.1f} s"]
        found += [
            f"{kind.value.replace('_', ' ')}: {count}"
            for kind, count in sorted(self.notes.items())
            if kind not in (NoteKind.CONNECTED, NoteKind.SILENT, NoteKind.REPLAYED)
        ]
        if self.num_missing:
            found.append(f"batches missing: {self.num_missing:,}")
        if self.lag_mean_s is not None and self.lag_max_s is not None:
            found.append(
                f"heard after {self.lag_mean_s * 1e3:,.1f} ms, at most {self.lag_max_s * 1e3:,.1f}"
            )
        return "; ".join(found)

    def record(self, seconds: float) -> dict[str, object]:
        """As a JSON object."""
        return {
            "kind": "summary",
            "seconds": round(seconds, 3),
            "events": self.num_events,
            "batches": self.num_batches,
            "replayed_batches": self.num_replayed,
            "ranks": len(self.ranks),
            "missing_batches": self.num_missing,
            "lag_mean_s": self.lag_mean_s,
            "lag_max_s": self.lag_max_s,
            "notes": {kind.value: count for kind, count in sorted(self.notes.items())},
        }


def _counted(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{ending}"
