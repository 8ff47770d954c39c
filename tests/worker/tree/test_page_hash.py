"""Pages, digests and namespaces, against recorded numbers and against hashlib."""

import struct
from hashlib import sha256

import pytest

from worker.tree import CacheKey, HashFormat, TreeConfig, TreeCore
from worker.tree.page_hash import chain_digests, namespace_of, run_of, split_pages

WIDE_TOKEN = 1 << 32


def config(page_size: int = 2, **options: object) -> TreeConfig:
    return TreeConfig(page_size, device_tokens=64, adapters={"lora": "my-adapter"}, **options)  # type: ignore[arg-type]


def framed(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    return b"\x01" + struct.pack("<Q", len(text.encode())) + text.encode()


def signed(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


@pytest.mark.parametrize(
    ("page_size", "tokens", "hashes"),
    [
        (2, [1, 2, 7, 8], [3817746824117602890, 863173374788446151]),
        (2, [1, 2, 3, 4, 5], [3817746824117602890, -4216701448867210342]),
        (4, [1, 2, 3, 4], [-3488128144981237669]),
        (4, [1, 2, 3], []),
        (1, [], []),
    ],
)
def test_event_hashes_are_the_recorded_ones(
    page_size: int, tokens: list[int], hashes: list[int]
) -> None:
    digests = chain_digests(split_pages(tokens, page_size), None)
    assert [signed(digest) for digest in digests] == hashes


def test_a_digest_covers_the_one_before_whole() -> None:
    first, second = chain_digests(split_pages([1, 2, 3, 4], 2), None)
    assert first == sha256(struct.pack("<2I", 1, 2)).digest()
    assert second == sha256(first + struct.pack("<2I", 3, 4)).digest()


def test_a_page_with_a_token_beyond_32_bits_is_wide_and_its_neighbours_are_not() -> None:
    narrow, wide = split_pages([1, 2, 3, WIDE_TOKEN], 2)
    assert narrow == struct.pack("<2I", 1, 2)
    assert wide == b"\xff" + struct.pack("<2Q", 3, WIDE_TOKEN)
    assert split_pages([1, 2], 2) == [narrow]


@pytest.mark.parametrize("token", [-1, 1 << 64])
def test_a_token_that_no_page_can_hold_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match="negative or beyond"):
        split_pages([1, token], 2)


@pytest.mark.parametrize("tokens", [[], [5], [5, 6], [5, 6, 7, 8, 9], [1, WIDE_TOKEN, 2, 3, 4]])
def test_pairs_cover_one_token_more_than_their_pages(tokens: list[int]) -> None:
    pages = split_pages(tokens, 2, is_eagle=True)
    num_units = max(len(tokens) - 1, 0) // 2 * 2
    assert len(pages) == num_units // 2
    assert run_of(pages, is_eagle=True) == (tokens[: num_units + 1] if pages else [])


def test_a_page_of_pairs_hashes_both_tokens_of_each() -> None:
    assert split_pages([1, 2, 3], 2, is_eagle=True) == [struct.pack("<4I", 1, 2, 2, 3)]


def test_runs_survive_the_way_through_pages() -> None:
    tokens = [1, WIDE_TOKEN, 3, 4, 5]
    assert run_of(split_pages(tokens, 2)) == tokens[:4]


@pytest.mark.parametrize(
    ("extra_key", "salt"), [("ek", None), (None, "s"), ("ek", "s"), ("", ""), ("é", None)]
)
def test_storage_chain_starts_from_extra_key_and_salt(
    extra_key: str | None, salt: str | None
) -> None:
    seed = sha256(b"sglang-cache-namespace-v1" + framed(extra_key) + framed(salt)).digest()
    (page,) = TreeCore(config()).page_hashes(CacheKey((1, 2), extra_key, salt))
    assert page.digest == sha256(seed + struct.pack("<2I", 1, 2)).digest()


def test_event_chain_starts_from_the_salt_alone() -> None:
    core = TreeCore(config())
    seed = sha256(b"sglang-cache-salt-v1\0" + b"s").digest()
    expected = int.from_bytes(sha256(seed + struct.pack("<2I", 1, 2)).digest()[:8], "big")
    assert core.page_hashes(CacheKey((1, 2), None, "s"))[0].event_hash == expected
    assert core.page_hashes(CacheKey((1, 2), "ek", "s"))[0].event_hash == expected


def test_two_extra_keys_share_event_hashes_and_no_storage_digest() -> None:
    core = TreeCore(config())
    plain, other = (core.page_hashes(CacheKey((1, 2), key))[0] for key in (None, "ek"))
    assert plain.event_hash == other.event_hash
    assert plain.digest != other.digest


@pytest.mark.parametrize(
    ("hash_format", "extra_key", "salt", "seeded_salt"),
    [
        (HashFormat.DEFAULT, "lora", None, None),
        (HashFormat.DEFAULT, "lora", "s", None),
        (HashFormat.DYNAMO, "lora", "s", "s"),
        (HashFormat.DYNAMO, "ek", None, None),
        (HashFormat.DYNAMO, None, "s", "s"),
    ],
)
def test_adapters_and_the_dynamo_format_rename_the_hash(
    hash_format: HashFormat, extra_key: str | None, salt: str | None, seeded_salt: str | None
) -> None:
    namespace = namespace_of(config(hash_format=hash_format), extra_key, salt)
    digest = sha256(b"any").digest()
    label = b"sglang-kv-event-namespace-v1"
    seed = sha256(label + framed(extra_key) + framed(seeded_salt)).digest()
    expected = int.from_bytes(sha256(seed + digest[:8]).digest()[:8], "big")
    assert namespace.event_hash(digest) == expected
    assert namespace.adapter == ("my-adapter" if extra_key == "lora" else None)


def test_no_namespace_has_no_seed_in_any_format() -> None:
    namespace = namespace_of(config(hash_format=HashFormat.DYNAMO), None, None)
    seeds = (namespace.storage_seed, namespace.event_seed, namespace.rename_seed)
    assert seeds == (None, None, None)


@pytest.mark.parametrize("hash_format", HashFormat)
def test_an_adapter_is_known_at_the_end_of_an_extra_key(hash_format: HashFormat) -> None:
    """A namespace of its own, that says whose it is."""
    adapter_id = "0123456789abcdef" * 2
    config = TreeConfig(4, 64, adapters={adapter_id: "sql"}, hash_format=hash_format)
    alone, behind = (namespace_of(config, key, None) for key in (adapter_id, "own" + adapter_id))
    assert (alone.adapter, behind.adapter) == ("sql", "sql")
    assert alone.rename_seed != behind.rename_seed is not None
    assert namespace_of(config, adapter_id + "own", None).adapter is None
