"""What a removal from GPU says of blocks that no event stored there, and that evidence alone holds."""

from collections.abc import Callable, Collection, Iterable

from indexer.aged_marks import AgedMarks
from indexer.block_index import Ref
from protocol import EngineHash


def unobserve(
    observed: AgedMarks,
    hashes: Iterable[EngineHash],
    unknown: Collection[EngineHash],
    ref_of: Callable[[EngineHash], Ref | None],
) -> None:
    """Drop the marks on blocks that have a name, and with each of them on the ones before it in its prompt, as
    many as nameless hashes come right before its own: engines remove whole nodes, from parent to child.
    O(hashes + marks dropped).

    Args:
        hashes: all that one event removed, in its order.
        unknown: those of them that no event stored.
        ref_of: the block a hash names; None where it names none.
    """
    nameless, num_before = set(unknown), 0
    for block_hash in hashes:
        ref = ref_of(block_hash) if block_hash in nameless else None
        if ref is not None:
            observed.unmark_up_to(ref, num_before)
        num_before = num_before + 1 if ref is None and block_hash in nameless else 0
