"""What events say of adapter, salt, images, groups and tokens; unknown identity ends the credit."""

from collections import Counter
from typing import Any

import pytest

from indexer.identity import ClaimSkip, makes_prefix_claims, multimodal_id, read_piece
from protocol import BlockStored, num_tokens

U32 = (1 << 32) - 1


def store(count: int = 3, size: int = 2, **fields: Any) -> BlockStored:
    tokens = fields.pop("token_ids", list(range(count * size)))
    return BlockStored(
        list(range(100, 100 + count)),
        fields.pop("parent_hash", None),
        tokens,
        size,
        **fields,
    )


@pytest.mark.parametrize(
    ("fields", "adapter", "salt", "num_known"),
    [
        ({}, None, None, 3),
        ({"cache_salt": "s"}, None, "s", 3),
        ({"lora_name": "ad"}, "ad", None, 3),
        ({"lora_id": 7}, "#7", None, 3),
        ({"lora_id": 7, "lora_name": "ad"}, "ad", None, 3),
        ({"extra_keys": [None, None, None]}, None, None, 3),
        ({"extra_keys": [["s"], None, None]}, None, "s", 3),
        ({"lora_name": "ad", "extra_keys": [["ad", "s"], ["ad"], ["ad"]]}, "ad", "s", 3),
        ({"lora_name": "ad", "extra_keys": [["ad", "ad"], ["ad"], ["ad"]]}, "ad", "ad", 3),
        ({"lora_id": 7, "extra_keys": [["ad"], ["ad"], ["ad"]]}, "ad", None, 3),
        ({"lora_name": "ad", "extra_keys": [["ad"], ["other"], ["ad"]]}, "ad", None, 1),
        ({"parent_hash": 5, "extra_keys": [["s"], None, None]}, None, None, 0),
        ({"extra_keys": [None, ["digest"], None]}, None, None, 1),
        ({"extra_keys": [None, None, [b"digest"]]}, None, None, 2),
        ({"extra_keys": [None, [["image", 0], {"new": 1}], None]}, None, None, 1),
        ({"extra_keys": [[["image", 0, 1]], None, None]}, None, None, 0),
        ({"extra_keys": [None, [["image", "0"]], None]}, None, None, 1),
        ({"cache_salt": "s", "extra_keys": [["s"], None, None]}, None, "s", 3),
    ],
)
def test_identity(
    fields: dict[str, Any], adapter: str | None, salt: str | None, num_known: int
) -> None:
    skips: Counter[ClaimSkip] = Counter()
    piece = read_piece(store(**fields), skips)
    assert (piece.adapter, piece.num_known) == (adapter, num_known)
    if num_known:
        assert piece.salt == salt
    assert num_tokens(piece.tokens) == 2 * num_known
    assert +skips == ({ClaimSkip.UNKNOWN_IDENTITY: 3 - num_known} if num_known < 3 else {})


def test_images_belong_to_the_blocks_they_touch() -> None:
    keys = [None, [["cat", 3]], [["cat", 0], ["dog", 1], [12, 2]]]
    piece = read_piece(store(extra_keys=keys), Counter())
    assert piece.multimodal == {
        1: [multimodal_id("cat")],
        2: [multimodal_id("cat"), multimodal_id("dog"), 12],
    }
    assert multimodal_id("cat") == multimodal_id(b"cat") != multimodal_id("dog")


@pytest.mark.parametrize(
    ("token_ids", "is_eagle", "num_known"),
    [
        ([1, 2, 3, 4, 5, U32], False, 3),
        ([1, 2, 3, 4, 5, U32 + 1], False, 2),
        ([1, 2, U32 + 1, 4, 5, 6], False, 1),
        ([-1, 2, 3, 4, 5, 6], False, 0),
        ([1, 2, U32 + 1, 4, U32 + 1, 6], False, 1),
        ([1, 2, 3, 4, 5, 6, U32 + 1], True, 2),
        ([1, 2, U32 + 1, 4, 5, 6, 7], True, 0),  # the last pair of the first block holds it, too
        ([1, 2, 3, U32 + 1, 5, 6, 7], True, 1),
    ],
)
def test_tokens_beyond_32_bits_end_the_credit(
    token_ids: list[int], is_eagle: bool, num_known: int
) -> None:
    skips: Counter[ClaimSkip] = Counter()
    piece = read_piece(store(token_ids=token_ids, is_eagle=is_eagle), skips)
    assert piece.num_known == num_known
    assert num_tokens(piece.tokens) == (2 * num_known + is_eagle if num_known else 0)
    assert skips[ClaimSkip.TOKEN_RANGE] == 3 - num_known


@pytest.mark.parametrize("token_ids", [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_tokens_that_do_not_fit_the_hashes_are_not_credited(token_ids: list[int]) -> None:
    skips: Counter[ClaimSkip] = Counter()
    assert read_piece(store(token_ids=token_ids), skips).num_known == 0
    assert skips == {ClaimSkip.TOKEN_COUNT: 3}


@pytest.mark.parametrize(
    ("kind", "window", "expected"),
    [
        (None, None, True),
        (None, 128, False),
        ("full_attention", None, True),
        ("FullAttentionSpec", None, True),
        ("full_attention", 4096, True),
        ("mla", None, True),
        ("mla_attention", None, True),
        ("latent_attention", None, True),
        ("sliding_window", 64, False),
        ("sliding_window_mla", 64, False),
        ("mamba", None, False),
        ("chunked_local_attention", None, False),
        ("cross_attention", None, False),
        ("telepathy", None, None),
    ],
)
def test_group_kinds(kind: str | None, window: int | None, expected: bool | None) -> None:
    assert makes_prefix_claims(kind, window) is expected
