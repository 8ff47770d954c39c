"""About how much memory the index takes.

A dictionary grows in leaps, so its size is asked of the interpreter and not told by its entries. What lies in it is
counted in figures of CPython on 64 bits:

    block     key, the same object as the first holder's ref but in a space numbered above 0; mask, shared
    claim     the engine's hash, by one of the table; a ref, one for all tiers of a rank
    mark      an entry of its own, under the block's ref

Bounded memories of what a rank did a while ago count as far as they hold blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from sys import getsizeof

from indexer.block_index import BlockIndex, Ref
from indexer.ledger import RankLedger
from protocol import EngineHash, Tier

Table = Mapping[EngineHash, Ref | None]

_KEY = 48
"""A number of 64 bits, as the allocator rounds it up; a ref as well."""
_PACKED_KEY = 8
"""Once more, of a block in a segment."""
_MARK = 60
_DOUBT = 40
_PARKED = 50
_LEFT = 8 + _KEY
"""A block that left a tier a while ago: its ref, which may be held by nothing else."""
_RANK = 15_000
"""The books of a rank that holds nothing."""
_GRAIN = 16


def index_size(blocks: BlockIndex, ledgers: Iterable[RankLedger]) -> int:
    """Bytes; O(key spaces, ranks and their groups)."""
    size = num_keys = 0
    for space in blocks.spaces().values():
        size += getsizeof(space.masks)
        size += len(space.masks) * _KEY if space.number else 0
        num_keys += 0 if space.number else len(space.masks)
    num_refs = 0
    for ledger in ledgers:
        size += _RANK + _size_of_marks(ledger)
        for group in ledger.groups.values():
            tables = group.tables()
            size += sum(map(_size_of_table, tables)) + getsizeof(group.unnamed)
            num_refs += _num_refs(tables, len(group.unnamed))
    size += blocks.num_segmented * _PACKED_KEY
    return size + max(num_refs, num_keys) * _KEY


def _size_of_table(table: Table) -> int:
    """The table with its hashes; of one group they are nearly always of one kind."""
    if not table:
        return getsizeof(table)
    hash_bytes = getsizeof(next(iter(table)))
    return getsizeof(table) + len(table) * (-(-hash_bytes // _GRAIN) * _GRAIN)


def _num_refs(tables: Sequence[Table], num_unnamed: int) -> int:
    """Refs of a group: a block is the same one on each tier, and what was held a while ago has left some tier."""
    return max(max(map(len, tables[: len(Tier)])) - num_unnamed, 0)


def _size_of_marks(ledger: RankLedger) -> int:
    claims = ledger.claims
    num_left = sum(map(len, claims.departures.values()))
    return (
        (len(claims.observed) + len(claims.predicted)) * _MARK
        + claims.num_doubtful * _DOUBT
        + ledger.num_orphans * _PARKED
        + num_left * _LEFT
    )
