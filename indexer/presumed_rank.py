"""Whose is a message that cannot be read, of a publisher that speaks for several ranks? It names nobody."""

from collections.abc import Mapping

from indexer.heard_batch import HeardBatch
from indexer.stream import EventStream


def presumed_rank(
    streams: Mapping[int, EventStream], heard: HeardBatch, own_rank: int
) -> int | None:
    """The one that has accounted for it before, the only rank heard so far, or the only one that expects the number.

    Where that leaves several it is nobody's, and a gap will show whose it was. O(ranks).

    Args:
        streams: of the publisher, by rank.
        own_rank: whose it is where none was heard so far.
    """
    speaking = {r: s.position for r, s in streams.items() if s.position.num_applied}
    if not speaking:
        return own_rank
    known = [r for r in speaking if speaking[r].ring.compare(heard.seq, heard.payload)]
    if known:
        return known[0]
    expecting = [r for r in speaking if len(speaking) == 1 or speaking[r].expected == heard.seq]
    return expecting[0] if len(expecting) == 1 else None


def is_guessed(streams: Mapping[int, EventStream], heard: HeardBatch, dp_rank: int) -> bool:
    """Whether it may as well be of another rank that has been heard. O(ranks)."""
    if streams[dp_rank].position.ring.compare(heard.seq, heard.payload):
        return False
    return any(s.position.num_applied for r, s in streams.items() if r != dp_rank)
