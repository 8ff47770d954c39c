"""One prompt that ranks serve, and what events say of it."""

from protocol import BlockStored
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt

A = names(0, 8)
TOKENS = blocks(0, 8)
REQUEST = prompt([*TOKENS, 1, 2])  # eight full blocks and a partial one


def store(first: int, last: int, medium: str = "GPU") -> BlockStored:
    parent = A[first - 1] if first else None
    return BlockStored(A[first:last], parent, TOKENS[4 * first : 4 * last], 4, medium)


def counts(fleet: SmallFleet, worker: str = "w") -> tuple[int, int, int]:
    match = fleet.match(worker, REQUEST)
    return match.gpu_blocks, match.observed_blocks, match.predicted_blocks
