"""What a worker believes to lie in storage, where nothing in its tree tells.

Pages that it wrote or fetched itself. Storage may have dropped them since, which the next lookup of a prompt
corrects; until then they are not written again, and a request computes what it cannot fetch.

Source: SGLang 0.5.23 (existence cache of the mode ``buffer_only``).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

DEFAULT_MAX_PAGES = 128 * 1024


class StorageBelief:
    """Digests, at most ``max_pages``: beyond it the one goes that was asked for longest ago, to be written once more."""

    def __init__(self, max_pages: int = DEFAULT_MAX_PAGES) -> None:
        self._max_pages = max_pages
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, digest: bytes) -> bool:
        if digest not in self._digests:
            return False
        self._digests.move_to_end(digest)
        return True

    def add(self, digests: Iterable[bytes]) -> None:
        """These are there. O(digests)."""
        for digest in digests:
            self._digests[digest] = None
            self._digests.move_to_end(digest)
        while len(self._digests) > self._max_pages:
            self._digests.popitem(last=False)

    def correct(self, digests: Sequence[bytes], num_held: int) -> None:
        """Storage has said that it holds so many of a prompt's leading pages: the others count as gone."""
        for digest in digests[num_held:]:
            self._digests.pop(digest, None)

    def clear(self) -> None:
        """Believe nothing."""
        self._digests.clear()

    def check(self) -> None:
        """Verify the bound."""
        assert len(self._digests) <= self._max_pages, f"{len(self._digests)} digests"
