"""Blocks from ids: equal ids give equal tokens, different ids different ones, lengths are exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import BlockSynthesis, TraceRecord, Vocabulary
from tests.loadgen.words import WordTokenizer

VOCABULARY = Vocabulary(WordTokenizer())
IDS = st.integers(0, (1 << 63) - 1)


@st.composite
def records(draw: st.DrawFn, block_size: int) -> TraceRecord:
    hash_ids = draw(st.lists(IDS, min_size=1, max_size=6))
    tail = draw(st.integers(1, block_size))
    return TraceRecord(0.0, (len(hash_ids) - 1) * block_size + tail, 1, tuple(hash_ids))


@given(record=records(block_size=16))
def test_length_is_exact_and_every_token_plain(record: TraceRecord) -> None:
    synthesis = BlockSynthesis(VOCABULARY.token_ids, block_size=16)
    tokens = synthesis.tokens(record)
    assert len(tokens) == record.input_length
    assert set(tokens) <= set(VOCABULARY.token_ids)


@given(record=records(block_size=16))
def test_survives_being_text(record: TraceRecord) -> None:
    tokens = BlockSynthesis(VOCABULARY.token_ids, block_size=16).tokens(record)
    text = VOCABULARY.text(tokens)
    assert WordTokenizer().encode(text, add_special_tokens=False) == tokens


@given(first=records(block_size=16), second=records(block_size=16))
def test_prompts_share_exactly_the_tokens_of_their_common_blocks(
    first: TraceRecord, second: TraceRecord
) -> None:
    synthesis = BlockSynthesis(VOCABULARY.token_ids, block_size=16)
    ones, others = synthesis.tokens(first), synthesis.tokens(second)
    for i, (one, other) in enumerate(zip(first.hash_ids, second.hash_ids, strict=False)):
        mine, theirs = ones[16 * i : 16 * i + 16], others[16 * i : 16 * i + 16]
        if len(mine) == len(theirs) == 16:
            assert (mine == theirs) == (one == other)


@given(one=IDS, other=IDS, seed=st.integers(0, 5))
def test_different_ids_differ_within_the_digits(one: int, other: int, seed: int) -> None:
    synthesis = BlockSynthesis(VOCABULARY.token_ids, block_size=11, seed=seed)
    assert (synthesis.block(one) == synthesis.block(other)) == (one == other)


def test_a_partial_block_is_the_start_of_the_whole_one() -> None:
    synthesis = BlockSynthesis(VOCABULARY.token_ids)
    whole = synthesis.block(9)
    assert len(whole) == 512
    assert synthesis.tokens(TraceRecord(0.0, 100, 1, (9,))) == whole[:100]


def test_seeds_differ_and_repeat() -> None:
    blocks = [BlockSynthesis(VOCABULARY.token_ids, seed=seed).block(5) for seed in (0, 1, 0)]
    assert blocks[0] == blocks[2] != blocks[1]


@pytest.mark.parametrize(("ids", "block_size"), [((7,), 512), ((1, 2), 62), (tuple(range(64)), 10)])
def test_blocks_that_cannot_hold_an_id_are_refused(ids: tuple[int, ...], block_size: int) -> None:
    with pytest.raises(ValueError, match=r"at least two|cannot hold"):
        BlockSynthesis(ids, block_size=block_size)
