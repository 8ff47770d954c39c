"""The names of blocks: a SHA-256 chain over tokens and whatever else makes equal tokens differ.

    digest = SHA-256(pickle((digest of the block before, tokens, extra keys or None)))

Extra keys are the adapter in every block, and the cache salt in the first, each with a tag. The root of all
chains is the digest of a fixed text, so equal prompts have equal names in every process.

Source: vLLM 0.32.0, ``prefix_caching_hash_algo`` sha256; equal to its recorded hashes but for those of
adapters, whose tag is not known.
"""

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from protocol import EngineHash

_PICKLE_PROTOCOL = 5
_LOW_BYTES = 8


@dataclass(frozen=True, slots=True)
class BlockName:
    """One full block: what is in it, and what comes before.

    Attributes:
        parent: digest of the block before; None for the first of a prompt.
        extra: extra keys as they are announced, without tags; None where there are none.
        adapter: LoRA of the request.
        session_id: of the request that computed it; for attribution only.
    """

    digest: bytes
    parent: bytes | None
    tokens: tuple[int, ...]
    extra: tuple[str, ...] | None = None
    adapter: str | None = None
    session_id: str | None = None


class BlockChain:
    """Names of the blocks of one request, made as its tokens become known. O(tokens) in all."""

    def __init__(
        self,
        block_size: int,
        *,
        adapter: str | None = None,
        cache_salt: str | None = None,
        session_id: str | None = None,
    ) -> None:
        self._block_size = block_size
        self._adapter = adapter
        self._salt = cache_salt
        self._session_id = session_id
        self._names: list[BlockName] = []

    def names(self, tokens: Sequence[int]) -> list[BlockName]:
        """Of every full block of ``tokens``, which begin as they did at the call before."""
        size = self._block_size
        for index in range(len(self._names), len(tokens) // size):
            part = tuple(tokens[index * size : (index + 1) * size])
            self._names.append(self._name(part))
        return self._names

    def _name(self, tokens: tuple[int, ...]) -> BlockName:
        parent = self._names[-1].digest if self._names else None
        salt = self._salt if parent is None else None
        pairs = (("lora", self._adapter), ("cache_salt", salt))
        tagged = tuple(pair for pair in pairs if pair[1] is not None)
        extra = tuple(key for _, key in pairs if key is not None)
        digest = _digest((parent or _ROOT, tokens, tagged or None))
        return BlockName(digest, parent, tokens, extra or None, self._adapter, self._session_id)


def engine_hash(digest: bytes, *, is_whole: bool) -> EngineHash:
    """A digest as it is published: whole, or its low 64 bits as an unsigned number."""
    return digest if is_whole else int.from_bytes(digest[-_LOW_BYTES:], "big")


def _digest(content: object) -> bytes:
    return hashlib.sha256(pickle.dumps(content, _PICKLE_PROTOCOL)).digest()


_ROOT = _digest("vllm-none-hash")
