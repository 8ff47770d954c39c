"""The worst case of the index in bytes: every table of every rank full at once, and what an entry takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from indexer.dispatches import MAX_BLOCKS, MAX_PROMPTS
from indexer.limits import IndexLimits
from indexer.storage_rules import StorageRules
from scripts.reference.markdown import code, table

_TIERS, _GENERATIONS = 3, 2
_MIB = 1 << 20
_CLAIM_BYTES = 300
_PROMPT_BYTES = 700
_MARK_BYTES = 220
_NAME_BYTES = 150


@dataclass(frozen=True, slots=True)
class Table:
    """One table of one rank.

    Attributes:
        num_entries: at its bound.
        entry_bytes: what one takes at most, hashes, floats and dictionaries included.
    """

    name: str
    bound: str
    num_entries: int
    entry_bytes: int

    @property
    def size_bytes(self) -> int:
        """The table, full."""
        return self.num_entries * self.entry_bytes


def tables(limits: IndexLimits) -> Sequence[Table]:
    """What one rank with one cache group keeps beside its claims. A test holds the bytes against what is measured."""
    left = _TIERS * _GENERATIONS * limits.departures
    return (
        Table("observed blocks", "observed", limits.observed, _MARK_BYTES),
        Table("predicted blocks", "predicted", limits.predicted, _MARK_BYTES),
        Table("parked blocks", "orphans", limits.orphans, 850),
        Table("their tokens", "orphan_bytes", limits.orphan_bytes, 1),
        Table("blocks that left a tier", "departures", left, 160),
        Table("blocks with a second copy", "doubled", _GENERATIONS * limits.doubled, 130),
        Table("copies on HOST", "host_copies", _GENERATIONS * limits.host_copies, 130),
        Table("names of a while ago", "remembered", _GENERATIONS * limits.remembered, _NAME_BYTES),
        Table("namesakes", "namesakes", limits.namesakes, 500),
        Table("blocks of the last prompts", "", MAX_BLOCKS, 8),
    )


def memory(limits: IndexLimits) -> list[str]:
    """The arithmetic: the table, and the sums."""
    rows = [
        (
            one.name,
            code(one.bound),
            f"{one.num_entries:,}",
            f"{one.entry_bytes:,}",
            _mib(one.size_bytes),
        )
        for one in tables(limits)
    ]
    rank = sum(one.size_bytes for one in tables(limits))
    fleet, claims = limits.full_ranks * rank, limits.claims * _CLAIM_BYTES
    pool = (
        StorageRules().max_inferred * _MARK_BYTES + _GENERATIONS * limits.pool_names * _NAME_BYTES
    )
    text = (
        f"That is {_mib(rank)} MiB a rank with one cache group, and for the fleet {limits.full_ranks} times as much, "
        f"{_mib(fleet)} MiB, however many ranks there are: of 1,000 each has {_mib(fleet // 1_000)} MiB. The claims of all ranks "
        f"take {limits.claims:,} · {_CLAIM_BYTES} bytes = {_mib(claims)} MiB at most, so both {_mib(fleet + claims)} MiB. "
        f"Beside that each rank keeps {MAX_PROMPTS:,} prompts of {_PROMPT_BYTES} bytes. A storage pool that infers or speaks "
        f"has {_mib(pool)} MiB more than a rank. No fleet fills all of it: a rank whose events are whole parks nothing and "
        "observes what is 30 s old at most, and what is predicted is under way."
    )
    return [table(("of one rank", "bound", "entries", "bytes each", "MiB"), rows), text]


def _mib(size_bytes: int) -> str:
    mib = size_bytes / _MIB
    return f"{mib:,.0f}" if mib >= 10 else f"{mib:.1f}"
