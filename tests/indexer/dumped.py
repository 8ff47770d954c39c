"""Dumps of small fleets, and their way back."""

from collections.abc import Iterable, Sequence

from indexer.dump import rank_lines
from indexer.dump_format import EndLine, HeaderLine, write_line
from indexer.load import IndexLoad
from protocol import EventBatch, Rank
from tests.indexer.small_fleet import SmallFleet, blocks, names, rank


def dump(fleet: SmallFleet, *ranks: Rank) -> list[bytes]:
    """Every line of a dump of these ranks."""
    lines = [write_line(HeaderLine())]
    for one in ranks:
        snapshot = fleet.index.snapshot(one, fleet.now)
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


def full() -> SmallFleet:
    """Two ranks of 1,200 blocks and two parked ones each."""
    fleet = SmallFleet("a", "b")
    for worker in ("a", "b"):
        fleet.store(worker, names(0, 1_200), blocks(0, 1_200))
        fleet.store(
            worker, names(5_000, 2), blocks(0, 2), parent=b"unknown", extra_keys=[None, None]
        )
        fleet.index.apply(rank(worker), EventBatch(0.0, []), fleet.now, 9)
    return fleet


def feed(loading: IndexLoad, lines: Sequence[bytes]) -> None:
    """Feed lines to a load."""
    for line in lines:
        loading.feed(line)
