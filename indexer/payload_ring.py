"""Digests of the last payloads that were applied, by sequence number.

They answer one question: is this the message that was applied under that number, or another one? Every
payload carries the publisher's clock, so two processes never publish the same bytes.

Slot ``seq % size`` holds the number and the digest; memory is fixed at 16 bytes a slot.
"""

from array import array

from xxhash import xxh3_64_intdigest

_EMPTY = -1


class PayloadRing:
    """The last ``size`` remembered numbers. All operations O(1) but the hash, O(bytes)."""

    __slots__ = ("_digests", "_seqs", "_size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError("a ring has at least one slot")
        self._size = size
        self._seqs = array("q", [_EMPTY]) * size
        self._digests = array("Q", [0]) * size

    def remember(self, seq: int, payload: bytes) -> None:
        """Note what was applied under ``seq``; the number ``size`` before it is forgotten."""
        slot = seq % self._size
        self._seqs[slot] = seq
        self._digests[slot] = xxh3_64_intdigest(payload)

    def compare(self, seq: int, payload: bytes) -> bool | None:
        """Is ``payload`` what was applied under ``seq``? None where that is not known (any more)."""
        slot = seq % self._size
        if self._seqs[slot] != seq:
            return None
        return self._digests[slot] == xxh3_64_intdigest(payload)

    def put(self, seq: int, digest: int) -> None:
        """Note a payload by its digest alone."""
        slot = seq % self._size
        self._seqs[slot] = seq
        self._digests[slot] = digest

    def last(self, seq: int, count: int) -> list[tuple[int, int]]:
        """Numbers and digests of what is known of the last ``count`` numbers up to ``seq``, in order."""
        first = max(seq - min(count, self._size) + 1, 0)
        wanted = range(first, seq + 1)
        return [(n, self._digests[n % self._size]) for n in wanted if n in self]

    def clear(self) -> None:
        """Forget all; O(size)."""
        self._seqs = array("q", [_EMPTY]) * self._size

    def __contains__(self, seq: int) -> bool:
        return self._seqs[seq % self._size] == seq
