"""What passes through an index while few blocks live: distinct blocks that come, branch off one another and go.

branching     chains hang on any block that lives, and any of them goes, whatever hangs on it
never_gone    blocks are stored and none is removed
late          what a chain hangs on goes first, and its own blocks long after
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence

from protocol import BlockRemoved, BlockStored, EngineHash, EventBatch, KvEvent

_IN_EVENT = 16


def branching(num_blocks: int, num_live: int) -> Iterator[EventBatch]:
    """Distinct blocks of which so many live; at the end the rest goes as well."""
    rng = random.Random(1)
    live: list[Sequence[EngineHash]] = []
    for _ in range(0, num_blocks, _IN_EVENT):
        parent = rng.choice(rng.choice(live)) if live and rng.random() < 0.7 else None
        stored = _chain(rng, parent)
        live.append(stored.block_hashes)
        events: list[KvEvent] = [stored]
        if len(live) * _IN_EVENT > num_live:
            events.append(BlockRemoved(_pop(live, rng), "GPU"))
        yield EventBatch(0.0, events, 0)
    while live:
        yield EventBatch(0.0, [BlockRemoved(_pop(live, rng), "GPU")], 0)


def never_gone(num_blocks: int) -> Iterator[EventBatch]:
    """Distinct blocks, each chain on the one before."""
    rng = random.Random(2)
    parent: EngineHash | None = None
    for number in range(0, num_blocks, _IN_EVENT):
        stored = _chain(rng, parent if number % 1_024 else None)
        parent = stored.block_hashes[-1]
        yield EventBatch(0.0, [stored], 0)


def late(num_blocks: int, num_live: int) -> Iterator[EventBatch]:
    """Pairs of chains: the upper one goes at once, the lower one when it is old."""
    rng = random.Random(3)
    lower: deque[Sequence[EngineHash]] = deque()
    for _ in range(0, num_blocks, 2 * _IN_EVENT):
        above = _chain(rng, None)
        below = _chain(rng, above.block_hashes[-1])
        lower.append(below.block_hashes)
        events: list[KvEvent] = [above, below, BlockRemoved(above.block_hashes, "GPU")]
        if len(lower) * _IN_EVENT > num_live:
            events.append(BlockRemoved(lower.popleft(), "GPU"))
        yield EventBatch(0.0, events, 0)
    while lower:
        yield EventBatch(0.0, [BlockRemoved(lower.popleft(), "GPU")], 0)


def _chain(rng: random.Random, parent: EngineHash | None) -> BlockStored:
    hashes: list[EngineHash] = [rng.getrandbits(64) for _ in range(_IN_EVENT)]
    tokens = [rng.getrandbits(20) for _ in range(_IN_EVENT)]
    return BlockStored(hashes, parent, tokens, 1, "GPU")


def _pop(live: list[Sequence[EngineHash]], rng: random.Random) -> Sequence[EngineHash]:
    place = rng.randrange(len(live))
    live[place], live[-1] = live[-1], live[place]
    return live.pop()
