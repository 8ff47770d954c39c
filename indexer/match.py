"""Answers of a lookup, as values."""

from array import array
from dataclasses import dataclass

from indexer.identity import bounded_name
from indexer.prefix_walk import Run
from indexer.prompt_blocks import PromptBlocks
from indexer.storage_source import StorageSource, source_of
from indexer.trust import Trust
from protocol import BlockKey, KeySpace, TokenBytes, block_keys

Geometry = tuple[int, bool]
"""(block size in tokens, blocks are overlapping pairs): what selects a rank's key spaces."""


@dataclass(slots=True)
class RankMatch:
    """The longest run of leading blocks that one rank holds, each counted on its fastest tier.

    ``gpu_blocks + host_pinned_blocks + storage_blocks`` is the length of the run and
    ``matched_tokens`` that length times ``block_size``. ``observed_blocks`` of them rest on evidence
    alone, and ``storage_source`` is the weakest that storage blocks rest on. ``predicted_blocks`` follow
    the run, dispatched and not yet heard of; they are in no other number. A value, though not a frozen one:
    a lookup makes some, and ranks that are alike share one.
    """

    trust: Trust
    block_size: int
    gpu_blocks: int = 0
    host_pinned_blocks: int = 0
    storage_blocks: int = 0
    predicted_blocks: int = 0
    observed_blocks: int = 0
    storage_source: StorageSource | None = None

    @property
    def matched_blocks(self) -> int:
        """Length of the run, in blocks."""
        return self.gpu_blocks + self.host_pinned_blocks + self.storage_blocks

    @property
    def matched_tokens(self) -> int:
        """Length of the run, in tokens."""
        return self.matched_blocks * self.block_size


def match_of(run: Run, block_size: int, trust: Trust) -> RankMatch:
    """A run as the planner wants it."""
    gpu, host, storage, observed, predicted, pooled, inferred = run
    storage += pooled + inferred
    return RankMatch(
        trust, block_size, gpu + observed, host, storage, predicted, observed, source_of(run)
    )


class Prompt:
    """One request's tokens with the identity that selects its key spaces; keys are made once a size.

    Attributes:
        tokens: packed ids of the whole prompt, or of what comes before its first image (``is_cut``): its
            blocks count like any others, and what the engine reports of the rest proves nothing.
        is_approximate: what engines announce and report has nothing to do with it: ``tokens`` stand for those of
            the prompt, which are not known, or its namespace is in no event.
        model: the model's own name; what else a request may call it is resolved by whoever asks.
    """

    __slots__ = (
        "_blocks",
        "_keys",
        "_packed",
        "adapter",
        "is_approximate",
        "is_cut",
        "model",
        "salt",
        "tokens",
    )

    def __init__(
        self,
        tokens: TokenBytes,
        model: str,
        adapter: str | None = None,
        salt: str | None = None,
        *,
        is_cut: bool = False,
        is_approximate: bool = False,
    ) -> None:
        self.is_approximate = is_approximate
        self.tokens = tokens
        self.model = model
        self.adapter = bounded_name(adapter)
        self.salt = bounded_name(salt)
        self.is_cut = is_cut
        self._keys: dict[Geometry, list[BlockKey]] = {}
        self._packed: dict[Geometry, array[int]] = {}  # of those keys that came packed, too
        self._blocks: dict[Geometry, PromptBlocks] = {}

    def blocks(self, geometry: Geometry) -> PromptBlocks:
        """The prompt as ranks of this geometry keep it; O(tokens) once a block size, then O(1)."""
        found = self._blocks.get(geometry)
        if found is None:
            size, is_eagle = geometry
            key_space = self.space(size, is_eagle=is_eagle)
            keys = self.keys(size, is_eagle=is_eagle)
            found = self._blocks[geometry] = PromptBlocks(
                key_space, keys, self.tokens, self._packed.get(geometry)
            )
        return found

    def space(self, block_size: int, *, is_eagle: bool = False) -> KeySpace:
        """The key space in which a rank of this block size keeps the prompt."""
        return KeySpace(self.model, self.adapter, self.salt, block_size, is_eagle)

    def keys(self, block_size: int, *, is_eagle: bool = False) -> list[BlockKey]:
        """Keys of the prompt's full blocks; O(tokens) once a block size, then O(1)."""
        found = self._keys.get((block_size, is_eagle))
        if found is None:
            found = block_keys(self.tokens, block_size, is_eagle=is_eagle)
            self._keys[block_size, is_eagle] = found
        return found
