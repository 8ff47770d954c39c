"""Whose block is it? What an event says of adapter, salt, images and cache group.

Namespaces never share credit, so what cannot be identified is not credited: neither the block, nor
anything after it in its chain. Names of any length are told apart, and kept in bounded room.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b

from xxhash import xxh3_64_intdigest

from protocol import BlockStored, EngineHash, TokenBytes, TokenRangeError, local_hash, pack_tokens
from protocol.keys import SEED

MAX_NAME_CHARS = 512
"""Of an adapter's name, or a salt, that is kept as it is."""

_MAX_IMAGES = 512  # that one block touches
_MAX_TOKEN = (1 << 32) - 1
_U64 = (1 << 64) - 1


class ClaimSkip(StrEnum):
    """Why part of a readable event made or ended no claim. Events or blocks, as the comments say."""

    UNKNOWN_MEDIUM = "unknown_medium"  # events
    REMOTE = "remote"  # events: another worker's copy
    SPARSE_GROUP = "sparse_group"  # events: the group keeps some blocks only
    UNKNOWN_GROUP_KIND = "unknown_group_kind"  # events
    TOO_MANY_GROUPS = "too_many_groups"  # events
    TOKEN_COUNT = "token_count"  # blocks: ids and hashes do not fit together
    TOKEN_RANGE = "token_range"  # blocks: an id beyond 32 bits
    UNKNOWN_IDENTITY = "unknown_identity"  # blocks: extra keys of an unknown form
    BLOCK_SIZE_MIXED = "block_size_mixed"  # blocks: of another size than their parent
    TOO_MANY_GEOMETRIES = "too_many_geometries"  # blocks: of sizes beyond the bound
    AFTER_UNIDENTIFIED = "after_unidentified"  # blocks: in a chain after one of the above
    NAMESAKE = "namesake"  # blocks: beyond the bound of those that share a hash
    SELF_PARENT = "self_parent"  # blocks
    PARENT_CYCLE = "parent_cycle"  # blocks
    UNRESOLVED = "unresolved"  # blocks without tokens under a hash never heard of
    UNRESOLVED_FULL = "unresolved_full"  # the same, beyond the bound
    ORPHAN_DROPPED = "orphan_dropped"  # blocks: parked too long
    EVICTED = "evicted"  # blocks: the oldest claims, at the bound of all
    OTHER_MODEL = (
        "other_model"  # blocks: a storage pool's, of another model or of one that is not named
    )
    UNBELIEVED = "unbelieved"  # batches of an engine version whose events are not to be believed
    UNKNOWN_WORKER = "unknown_worker"  # batches after the worker was removed


@dataclass(slots=True, eq=False)
class Piece:
    """A run of blocks as one event tells it; where in a prompt it stands depends on its parent.

    Attributes:
        parent: engine hash of the block before; None at the start of a prompt.
        adapter: as the event names it; None leaves the parent's.
        salt: as the event names it; None leaves the parent's.
        multimodal: block index → u64 ids of the items the block touches.
        num_known: leading blocks whose tokens and identity are known; ``tokens`` covers these.
    """

    hashes: Sequence[EngineHash]
    parent: EngineHash | None
    tokens: TokenBytes
    block_size: int
    is_eagle: bool
    adapter: str | None
    salt: str | None
    multimodal: Mapping[int, Sequence[int]] | None
    num_known: int

    def first_local(self) -> int | None:
        """Unchained hash of the first block; None where it is not made of tokens alone."""
        if self.num_known == 0 or (self.multimodal and 0 in self.multimodal):
            return None
        width = 4 * (self.block_size + self.is_eagle)
        return local_hash(self.tokens[:width])


@lru_cache(maxsize=256)
def makes_prefix_claims(kind: str | None, sliding_window: int | None) -> bool | None:
    """Whether blocks of a cache group say how far a prefix is held.

    Args:
        kind: ``kv_cache_spec_kind`` on the wire; None where the event names none.
        sliding_window: tokens, where the event names one.

    Returns:
        True for full and latent attention and for unlabelled groups, False for groups that keep some
        blocks only, None for a kind nobody knows.

    Source: vLLM 0.32.0 cache spec kinds.
    """
    if kind is None:
        return sliding_window is None
    name = kind.lower()
    if any(
        word in name for word in ("sliding", "mamba", "chunk", "local", "linear", "ssm", "cross")
    ):
        return False
    if any(word in name for word in ("full", "mla", "latent")):
        return True
    return None


def multimodal_id(identifier: str | bytes) -> int:
    """The u64 under which an engine's multimodal identifier enters the block keys."""
    raw = identifier.encode() if isinstance(identifier, str) else identifier
    return xxh3_64_intdigest(raw, SEED)


def bounded_name(name: str | None) -> str | None:
    """An adapter's name, or a salt, as the index keeps it; a long one is cut, and longer than any other by its digest."""
    if name is None or len(name) <= MAX_NAME_CHARS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return name[:MAX_NAME_CHARS] + digest


def read_namespace(event: BlockStored) -> tuple[str | None, str | None]:
    """Adapter and salt as a store names them; None where it names none."""
    if event.lora_id is None and not (event.extra_keys and any(event.extra_keys)):
        return bounded_name(event.lora_name or None), bounded_name(event.cache_salt or None)
    identity = _Identity(event)
    return bounded_name(identity.adapter), bounded_name(identity.salt)


def read_piece(event: BlockStored, skips: Counter[ClaimSkip]) -> Piece:
    """What one store says of its blocks. ``skips`` counts the blocks that stay unidentified."""
    count, block_size = len(event.block_hashes), event.block_size
    adapter, salt, num_known = event.lora_name or None, event.cache_salt or None, count
    multimodal: Mapping[int, Sequence[int]] | None = None
    if event.lora_id is not None or (event.extra_keys and any(event.extra_keys)):
        identity = _Identity(event)
        adapter, salt, multimodal = identity.adapter, identity.salt, identity.multimodal
        num_known = identity.num_known
    if num_known < count:
        skips[ClaimSkip.UNKNOWN_IDENTITY] += count - num_known
    if block_size < 1 or len(event.token_ids) - event.is_eagle != count * block_size:
        skips[ClaimSkip.TOKEN_COUNT] += num_known
        num_known = 0
    token_ids = event.token_ids
    if num_known < count:
        token_ids = _leading(event, num_known)
    try:
        tokens = pack_tokens(token_ids)
    except TokenRangeError:
        sound = min(num_known, _sound_blocks(event))
        skips[ClaimSkip.TOKEN_RANGE] += num_known - sound
        num_known = sound
        tokens = pack_tokens(_leading(event, sound))
    return Piece(
        event.block_hashes, event.parent_hash, tokens, block_size, event.is_eagle,
        bounded_name(adapter), bounded_name(salt), multimodal, num_known,
    )  # fmt: skip


def _leading(event: BlockStored, num_blocks: int) -> Sequence[int]:
    """Tokens of the leading blocks."""
    return event.token_ids[: num_blocks * event.block_size + event.is_eagle if num_blocks else 0]


def _sound_blocks(event: BlockStored) -> int:
    """Leading blocks without a token that has no 32-bit form."""
    bad = next(i for i, token in enumerate(event.token_ids) if not 0 <= token <= _MAX_TOKEN)
    first_unit = max(0, bad - 1) if event.is_eagle else bad  # a pair holds its second token, too
    return first_unit // event.block_size


class _Identity:
    """Adapter, salt and images of one store, and how many leading blocks they are known for.

    vLLM's extra keys are untyped: a block's list holds the adapter's name if there is one, then one
    [identifier, offset] an image that the block touches, then in a prompt's first block the salt.
    Anything else (digests of prompt embeddings, forms to come) is unknown.
    """

    __slots__ = ("adapter", "multimodal", "num_known", "salt")

    def __init__(self, event: BlockStored) -> None:
        self.salt = event.cache_salt or None
        self.adapter = event.lora_name or None
        if self.adapter is None and event.lora_id is not None:
            self.adapter = f"#{event.lora_id}"
        self.multimodal: dict[int, list[int]] | None = None
        self.num_known = len(event.block_hashes)
        if event.extra_keys and any(event.extra_keys):
            self._read_extra_keys(event)

    def _read_extra_keys(self, event: BlockStored) -> None:
        if not event.lora_name and event.lora_id is not None:
            self._adopt_adapter_name(event.extra_keys or ())
        for index, items in enumerate((event.extra_keys or ())[: self.num_known]):
            is_first = index == 0 and event.parent_hash is None
            if items and not self._read_block(index, items, is_first=is_first):
                self.num_known = index
                return

    def _adopt_adapter_name(self, extra_keys: Iterable[Sequence[object] | None]) -> None:
        """An adapter that the event gives a number only may be named by its blocks."""
        first = next((items for items in extra_keys if items), ())
        if first and isinstance(first[0], str):
            self.adapter = first[0]

    def _read_block(self, index: int, items: Sequence[object], *, is_first: bool) -> bool:
        awaits_adapter, awaits_salt = self.adapter is not None, is_first and self.salt is None
        ids: list[int] = []
        for item in items:
            if isinstance(item, str):
                if awaits_adapter and item == self.adapter:
                    awaits_adapter = False
                elif awaits_salt:
                    self.salt, awaits_salt = item, False
                elif not (is_first and item == self.salt):
                    return False
            else:
                image = _image_id(item)
                if image is None or len(ids) >= _MAX_IMAGES:
                    return False
                ids.append(image)
        if ids:
            self.multimodal = self.multimodal or {}
            self.multimodal[index] = ids
        return True


def _image_id(item: object) -> int | None:
    """The u64 of an [identifier, offset] pair; None where it is no such pair."""
    if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[1], int):
        return None
    identifier = item[0]
    if isinstance(identifier, str | bytes):
        return multimodal_id(identifier)
    if isinstance(identifier, int) and not isinstance(identifier, bool) and 0 <= identifier <= _U64:
        return identifier
    return None
