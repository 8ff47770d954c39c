"""The story of storage refills: prefixes come back from L3 into host memory, announced or not."""

from loadgen.refill.sizes import RefillSpec
from loadgen.refill.story import RefillRun, StoryError, tell
from loadgen.refill.verdict import Requirements, refill_table, shortfalls

__all__ = [
    "RefillRun",
    "RefillSpec",
    "Requirements",
    "StoryError",
    "refill_table",
    "shortfalls",
    "tell",
]
