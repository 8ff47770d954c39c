"""Findings with a memory of when each was first seen."""

from collections.abc import Collection, Mapping

from indexer.detectors import DETECTORS, Evidence, Look, is_significant
from indexer.findings import Finding, FindingKind
from indexer.limits import IndexLimits
from indexer.rank_book import RankBook
from protocol import Rank

_MAX_RANKS_SHOWN = 64


class FindingBoard:
    """Asks every detector about every rank, and keeps since when a kind has been found.

    A finding that was significant once stays as long as any evidence of it does.
    """

    def __init__(self, limits: IndexLimits) -> None:
        self._limits = limits
        self._since: dict[FindingKind, float] = {}

    def look(self, books: Collection[RankBook], now: float) -> list[Finding]:
        """What is wrong at ``now``; O(ranks)."""
        findings: list[Finding] = []
        looks = [Look(book, self._limits, now) for book in books]
        for detector in DETECTORS:
            found = {
                look.book.rank: evidence
                for look in looks
                if (evidence := detector.detect(look)) is not None
            }
            is_raised = found and detector.kind in self._since
            if not (is_raised or is_significant(detector.kind, [*found.values()], self._limits)):
                self._since.pop(detector.kind, None)
                continue
            since = self._since.setdefault(detector.kind, now)
            ranks = tuple(sorted(found)[:_MAX_RANKS_SHOWN])
            evidence = _together(found)
            findings.append(Finding(detector.kind, since, ranks, evidence, detector.advice))
        return findings


def _together(found: Mapping[Rank, Evidence]) -> Evidence:
    """Counts summed over the ranks, examples from the first rank that has one."""
    merged: dict[str, int | float | str] = {"num_ranks": len(found)}
    for rank in sorted(found):
        for name, value in found[rank].items():
            known = merged.get(name)
            if known is None or isinstance(value, str) or isinstance(known, str):
                merged.setdefault(name, value)
            elif name.endswith(("_size", "_s")):
                merged[name] = max(known, value)
            else:
                merged[name] = known + value
    return merged
