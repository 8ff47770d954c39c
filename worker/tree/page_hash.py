"""Pages and their names: the bytes that a page's digest covers, the digest chain, and namespaces.

A page is kept as the very bytes that SHA-256 sees, so that comparing, hashing and storing it need no
conversion:

    plain     token as u32 LE                        4 × page_size bytes
    pairs     both tokens of each pair as u32 LE     8 × page_size bytes
    wide      0xFF, then the same ids as u64 LE      where an id is beyond 32 bits

    digest[i]  = SHA-256(digest[i-1] ‖ page[i])      digest[-1] = the namespace's seed, or nothing
    event hash = first 8 bytes of the digest, big-endian

Two chains: storage keys are seeded with extra key and salt, event digests with the salt alone. Adapters
(and, in the dynamo format, every namespace) rename the event hash instead of seeding its chain:

    SHA-256(seed ‖ event hash), first 8 bytes

Source: SGLang 0.5.23, recorded; recomputed from the tokens.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from worker.tree.config import HashFormat, TreeConfig

Page = bytes

_STORAGE_SEED = b"sglang-cache-namespace-v1"
_EVENT_SEED = b"sglang-kv-event-namespace-v1"
_SALT_SEED = b"sglang-cache-salt-v1\0"
_WIDE = b"\xff"
_ADAPTER_ID_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where a token sequence lives: equal pages of two namespaces are two pages.

    Attributes:
        adapter: name published with its stores; None for the base model.
        storage_seed: starts the storage chain.
        event_seed: starts the event chain.
        rename_seed: renames the event hashes.
    """

    extra_key: str | None = None
    cache_salt: str | None = None
    adapter: str | None = None
    storage_seed: bytes | None = None
    event_seed: bytes | None = None
    rename_seed: bytes | None = None

    def event_hash(self, digest: bytes) -> int:
        """The hash on the wire for an event digest (unsigned)."""
        if self.rename_seed is not None:
            digest = sha256(self.rename_seed + digest[:8]).digest()
        return int.from_bytes(digest[:8], "big")


PLAIN = Namespace()


def namespace_of(config: TreeConfig, extra_key: str | None, cache_salt: str | None) -> Namespace:
    """Namespace of a request: its seeds under the configured hash format."""
    if extra_key is None and cache_salt is None:
        return PLAIN
    adapter = None if extra_key is None else _adapter(config, extra_key)
    rename_seed = None
    if config.hash_format is HashFormat.DYNAMO:
        rename_seed = _seed(_EVENT_SEED, extra_key, cache_salt)
    elif adapter is not None:
        rename_seed = _seed(_EVENT_SEED, extra_key, None)
    salt_seed = None if cache_salt is None else sha256(_SALT_SEED + cache_salt.encode()).digest()
    return Namespace(
        extra_key=extra_key,
        cache_salt=cache_salt,
        adapter=adapter,
        storage_seed=_seed(_STORAGE_SEED, extra_key, cache_salt),
        event_seed=salt_seed,
        rename_seed=rename_seed,
    )


def _adapter(config: TreeConfig, extra_key: str) -> str | None:
    """Name of the adapter whose id the extra key is, or ends with."""
    found = config.adapters.get(extra_key)
    return found or config.adapters.get(extra_key[-_ADAPTER_ID_LENGTH:])


def split_pages(tokens: Sequence[int], page_size: int, *, is_eagle: bool = False) -> list[Page]:
    """Whole pages of a token sequence; the rest is left out. O(tokens).

    Raises:
        ValueError: an id is negative or beyond 64 bits.
    """
    try:
        ids = array("I", tokens)
    except OverflowError:
        return _split_wide(tokens, page_size, is_eagle=is_eagle)
    units = _pairs(ids) if is_eagle else ids
    content = units.tobytes()
    width = page_size * (8 if is_eagle else 4)
    return [content[end - width : end] for end in range(width, len(content) + 1, width)]


def chain_digests(pages: Iterable[Page], prior: bytes | None) -> list[bytes]:
    """Digest of every page, each over the one before; ``prior`` precedes the first. O(bytes)."""
    digests = []
    previous = b"" if prior is None else prior
    for page in pages:
        previous = sha256(previous + page).digest()
        digests.append(previous)
    return digests


def run_of(pages: Sequence[Page], *, is_eagle: bool = False) -> list[int]:
    """Token ids of consecutive pages; of pairs, the run that they cover: one id longer."""
    if any(len(page) % 4 for page in pages):
        ids = [token for page in pages for token in _ids(page)]
    else:
        ids = array("I", b"".join(pages)).tolist()
    return [*ids[0::2], ids[-1]] if is_eagle and ids else ids


def _split_wide(tokens: Sequence[int], page_size: int, *, is_eagle: bool) -> list[Page]:
    try:
        ids = array("Q", tokens)
    except OverflowError as error:
        raise ValueError("a token id is negative or beyond 64 bits") from error
    units = _pairs(ids) if is_eagle else ids
    count = page_size * (2 if is_eagle else 1)
    return [_pack(units[end - count : end]) for end in range(count, len(units) + 1, count)]


def _pack(ids: "array[int]") -> Page:
    try:
        return array("I", ids).tobytes()
    except OverflowError:
        return _WIDE + ids.tobytes()


def _ids(page: Page) -> "array[int]":
    return array("Q", page[1:]) if len(page) % 4 else array("I", page)


def _pairs(ids: "array[int]") -> "array[int]":
    """(a, b, c) as a, b, b, c."""
    pairs = array(ids.typecode, bytes(2 * ids.itemsize * max(len(ids) - 1, 0)))
    pairs[0::2], pairs[1::2] = ids[:-1], ids[1:]
    return pairs


def _seed(label: bytes, extra_key: str | None, cache_salt: str | None) -> bytes:
    return sha256(label + _framed(extra_key) + _framed(cache_salt)).digest()


def _framed(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return b"\1" + len(encoded).to_bytes(8, "little") + encoded
