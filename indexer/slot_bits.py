"""The bits of a slot, one byte in every mask of the block index.

    bit  0    1     2        3         4          │ 5               6            7
         GPU  HOST  STORAGE  OBSERVED  PREDICTED  │ POOL_ANNOUNCED  POOL_EVENTS  INFERRED
         0-2: announced by events                 │ in lookups only, never in the index

The lowest 64 bits of a mask are no slots: there stands the number of the segment that the block lies in, 0 for
none (`indexer.segments`). A rank's slot has the first five. A storage pool has a slot of its own, where HOST and STORAGE say on which of
the pool's media its events place a block, and OBSERVED that a copy is inferred. In a lookup these become the
last three bits of every rank that is attached to the pool.
"""

from collections.abc import Iterable

from protocol import Tier

STRIDE = 8
FIRST_SLOT = 8
NUMBER = (1 << FIRST_SLOT * STRIDE) - 1
"""Bits of a segment's number."""
GPU = 1 << Tier.GPU
HOST = 1 << Tier.HOST
STORAGE = 1 << Tier.STORAGE
OBSERVED = 8
PREDICTED = 16
POOL_ANNOUNCED = 32
POOL_EVENTS = 64
INFERRED = 128
IN_POOL = POOL_ANNOUNCED | POOL_EVENTS | INFERRED
ANNOUNCED = GPU | HOST | STORAGE
HELD = ANNOUNCED | OBSERVED
SLOT = GPU | HOST | STORAGE | OBSERVED | PREDICTED
WHOLE_SLOT = (1 << STRIDE) - 1


def slots_mask(slots: Iterable[int], bits: int = WHOLE_SLOT) -> int:
    """These bits of these slots, as a mask."""
    mask = 0
    for slot in slots:
        mask |= bits << slot * STRIDE
    return mask
