"""The prefixes of the story: their tokens, and the names of their blocks as the engines know them."""

from collections.abc import Sequence
from itertools import count

from loadgen.refill.sizes import RefillSpec
from loadgen.synthesis import BlockSynthesis
from loadgen.timed_request import TimedRequest, completion
from protocol import EngineHash
from worker.tree import CacheKey, TreeConfig, TreeCore

_TAIL_SEED = 1


class PrefixBook:
    """Makes requests, each a prefix and a tail of its own."""

    def __init__(self, spec: RefillSpec, model: str, token_ids: Sequence[int]) -> None:
        self._spec = spec
        self._model = model
        prefixes = BlockSynthesis(token_ids, block_size=spec.prefix_tokens)
        self._tokens = [prefixes.block(index) for index in range(spec.num_prefixes)]
        self._tails = BlockSynthesis(token_ids, block_size=spec.page_size, seed=_TAIL_SEED)
        self._num_requests = count()
        tree = TreeCore(TreeConfig(spec.page_size, spec.page_size, events_enabled=False))
        self._pages = [tree.page_hashes(CacheKey(tuple(tokens))) for tokens in self._tokens]
        assert all(len(pages) == spec.prefix_blocks for pages in self._pages)

    def request(self, prefix: int) -> TimedRequest:
        """A streamed request for the prefix with a tail that was not used before."""
        tail = self._tails.block(next(self._num_requests))[: self._spec.tail_tokens]
        path, body = completion(self._model, self._tokens[prefix] + tail, self._spec.output_tokens)
        return TimedRequest(0.0, path, body, f"prefix-{prefix}")

    def hashes(self, prefix: int) -> list[EngineHash]:
        """Event hashes of the prefix's blocks, in order."""
        return [page.event_hash for page in self._pages[prefix]]

    def digests(self, prefix: int) -> list[bytes]:
        """Storage keys of the prefix's blocks, in order."""
        return [page.digest for page in self._pages[prefix]]
