"""The index as lines, while events go on: one rank's copy at a time, one line a turn."""

import asyncio
from collections.abc import AsyncIterator, Callable

from indexer.dump import pool_lines, rank_lines
from indexer.dump_format import EndLine, HeaderLine, write_line
from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from protocol import Rank

_NUM_DIGESTS = 64  # of last payloads: so many batches may be under way to whoever splices


async def dump_index(
    index: FleetIndex, intake: Intake, clock: Callable[[], float], worker: str | None = None
) -> AsyncIterator[bytes]:
    """Every line of a dump. A rank that goes while it is told is told to its end.

    Args:
        worker: the only one whose ranks are told, or the key of the pools that alone are; None for all.
    """
    yield write_line(HeaderLine())
    num_ranks = 0
    for rank in [state.rank for state in index.rank_states(clock())]:
        if worker not in (None, rank.worker):
            continue
        now = clock()
        snapshot = index.snapshot(rank, now)
        if snapshot is None:
            continue
        seq = snapshot.seq
        digests = [] if seq is None else intake.digests(rank, seq, _NUM_DIGESTS)
        num_ranks += 1
        for line in rank_lines(snapshot, digests, now):
            yield write_line(line)
            await asyncio.sleep(0)
    num_pools = 0
    for key in index.pools.dump_keys():
        if worker not in (None, key):
            continue
        now = clock()
        for pool in index.pools.snapshots(key):  # at one moment: they share a stream
            digests = [] if pool.seq is None else intake.digests(Rank(key), pool.seq, _NUM_DIGESTS)
            num_pools += 1
            for line in pool_lines(pool, digests, now):
                yield write_line(line)
                await asyncio.sleep(0)
    yield write_line(EndLine(ranks=num_ranks, pools=num_pools))
