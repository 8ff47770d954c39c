"""Dumps of small fleets, and their way back."""

from collections.abc import Iterable

from indexer.dump import rank_lines
from indexer.dump_format import EndLine, HeaderLine, write_line
from indexer.load import IndexLoad
from protocol import Rank
from tests.indexer.small_fleet import SmallFleet


def dump(fleet: SmallFleet, *ranks: Rank) -> list[bytes]:
    """Every line of a dump of these ranks."""
    lines = [write_line(HeaderLine())]
    for rank in ranks:
        snapshot = fleet.index.snapshot(rank, fleet.now)
        assert snapshot is not None
        lines += map(write_line, rank_lines(snapshot, [], fleet.now))
    return [*lines, write_line(EndLine(ranks=len(ranks)))]


def load(fleet: SmallFleet, lines: Iterable[bytes]) -> IndexLoad:
    """Feed a dump to a fleet's index."""
    loading = IndexLoad(fleet.index, fleet.now)
    for line in lines:
        loading.feed(line)
        fleet.index.check()
    loading.finish()
    return loading
