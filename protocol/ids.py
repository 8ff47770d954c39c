"""Identities: the names that must never be mixed up, each a type of its own."""

from typing import NamedTuple, NewType, TypeAlias

BlockKey = NewType("BlockKey", int)
"""Our chained 64-bit hash over the tokens of a prompt up to the end of one block (unsigned)."""

WorkerId = NewType("WorkerId", str)
"""One engine endpoint."""

TokenBytes = NewType("TokenBytes", bytes)
"""Token ids as consecutive little-endian u32, the form that block keys are hashed from.
Shape: 4 × number of tokens."""

EngineHash: TypeAlias = int | bytes
"""The engine's own block hash, opaque: an unsigned 64-bit number, or its bytes as published."""


class Rank(NamedTuple):
    """One data-parallel rank of one worker: the thing that holds a cache.

    A tuple, for ranks are keys of many tables, and a tuple's hash is not computed in Python.
    """

    worker: WorkerId
    dp_rank: int = 0

    def __str__(self) -> str:
        return f"{self.worker}/{self.dp_rank}"
