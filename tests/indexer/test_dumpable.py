"""Whatever an index came to hold can be dumped and loaded, in lines of bounded size."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.dump_format import MAX_IN_LINE
from indexer.identity import MAX_NAME_CHARS, bounded_name
from indexer.match import Prompt
from indexer.trust import Trust
from protocol import BlockStored, EngineHash, EventBatch, decode_batch, encode_batch
from protocol.event_fields import MAX_HASH_BYTES
from tests.indexer.dumped import dump, load
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank

W = rank("w")
SIZE = 4
MAX_LINE = 1 << 20

hashes = st.one_of(
    st.integers(0, 9), st.integers(0, (1 << 64) - 1), st.binary(max_size=MAX_HASH_BYTES)
)
lengths = st.sampled_from([1, 2, MAX_NAME_CHARS, MAX_NAME_CHARS + 1, 5_000, 70_000])
long_names = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.builds(lambda char, length: char * length, st.characters(codec="utf-8"), lengths),
)
images = st.builds(
    lambda count, offset: [[f"image{i}", offset] for i in range(count)],
    st.sampled_from([0, 1, 2, MAX_IN_LINE, MAX_IN_LINE + 1, 3_000]),
    st.integers(0, 5),
)


@st.composite
def wild_stores(draw: st.DrawFn) -> BlockStored:
    """A store as some engine may publish it, of any names, hashes, sizes and images."""
    some = draw(st.lists(hashes, min_size=1, max_size=4))
    repeated = draw(st.sampled_from([1, 1, 1, 300]))
    named: list[EngineHash] = [
        *some, *(10**12 + i for i in range(len(some) * (repeated - 1)))
    ]  # fmt: skip
    size = draw(st.sampled_from([1, SIZE, 5_000 if repeated == 1 else SIZE, 70_000 // len(named)]))
    is_eagle = draw(st.booleans())
    tokens = [*range(len(named) * size + is_eagle)] if draw(st.integers(0, 4)) else []
    salt, adapter = draw(long_names), draw(long_names)
    extra = draw(st.none() | images.map(lambda found: [found, *[None] * (len(named) - 1)]))
    return BlockStored(
        named,
        draw(st.none() | hashes),
        tokens,
        size,
        draw(st.sampled_from(["GPU", "CPU", "DISK"])),
        lora_id=draw(st.none() | st.integers(0, 3)),
        lora_name=adapter,
        extra_keys=extra,
        cache_salt=salt,
        group_idx=draw(st.none() | st.integers(-5, 1 << 40)),
        spec_kind=draw(st.sampled_from([None, None, "mamba"])),
        is_eagle=bool(tokens) and is_eagle,
    )


@settings(deadline=None)
@given(st.lists(wild_stores(), max_size=4), st.lists(st.tuples(long_names, long_names), max_size=3))
def test_whatever_is_held_can_be_told(
    stores: Sequence[BlockStored], served: Sequence[tuple[str | None, str | None]]
) -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.index.apply(W, decode_batch(encode_batch(EventBatch(0.0, stores))), fleet.now, 7)
    for adapter, salt in served:
        asked = prompt(range(100), adapter=adapter, salt=salt)
        fleet.index.predict(W, asked, fleet.now)
        fleet.index.observe(W, asked, fleet.now)
    lines = dump(fleet, W)
    assert max(map(len, lines)) < MAX_LINE
    other = SmallFleet("w", trust=Trust.JOINED)
    assert len(load(other, lines).loaded) == 1
    mine, others = fleet.state("w"), other.state("w")
    assert (mine.blocks, mine.observed) == (others.blocks, others.observed)
    for adapter, salt in served:
        asked = prompt(range(100), adapter=adapter, salt=salt)
        assert other.match("w", asked).matched_blocks == fleet.match("w", asked).matched_blocks


@pytest.mark.parametrize("length", [MAX_NAME_CHARS, MAX_NAME_CHARS + 1, 5_000])
@pytest.mark.parametrize("is_salt", [True, False])
def test_long_names_are_told_apart(is_salt: bool, length: int) -> None:
    one, two = "n" * length, "n" * (length - 1) + "m"

    def asked(name: str | None) -> Prompt:
        tokens = blocks(0, 3)
        return prompt(tokens, salt=name) if is_salt else prompt(tokens, adapter=name)

    fleet, other = SmallFleet("w"), SmallFleet("w")
    store = BlockStored(names(0, 3), None, blocks(0, 3), SIZE, "GPU")
    named = replace(store, cache_salt=one) if is_salt else replace(store, lora_name=one)
    fleet.index.apply(W, EventBatch(0.0, [named]), fleet.now, 9)
    load(other, dump(fleet, W))
    is_short = length <= MAX_NAME_CHARS
    for name, expected in ((one, 3), (two, 0), (bounded_name(one), 3 * is_short), (None, 0)):
        for index in (fleet, other):
            assert index.match("w", asked(name)).matched_blocks == expected


@pytest.mark.parametrize("is_eagle", [False, True])
@pytest.mark.parametrize("size", [1, 16, 60_000])
@pytest.mark.parametrize("num_images", [0, 1, 500])
def test_long_parked_pieces_are_told_in_parts(size: int, num_images: int, is_eagle: bool) -> None:
    """And adopted as if they had come so: each block under its own hash."""
    count = 1_300 if size < 100 else 5
    fleet, parent = SmallFleet("w", trust=Trust.JOINED), names(99_999, 1)[0]
    tokens = list(range(count * size + is_eagle))
    images = [[f"i{i}", 0] for i in range(num_images)]
    store = BlockStored(
        names(0, count), parent, tokens, size, "GPU", extra_keys=[images, *[None] * (count - 1)],
        is_eagle=is_eagle,
    )  # fmt: skip
    fleet.apply("w", store)
    fleet.index.apply(W, EventBatch(0.0, []), fleet.now, 7)
    lines = dump(fleet, W)
    assert sum(b'"parked"' in line for line in lines) > 1
    assert max(map(len, lines)) < MAX_LINE
    other = SmallFleet("w", trust=Trust.JOINED)
    load(other, lines)
    assert other.state("w").orphans == fleet.state("w").orphans == count
    first = BlockStored(
        [parent], None, list(range(size + is_eagle)), size, "GPU", is_eagle=is_eagle
    )
    for one in (fleet, other):
        one.apply("w", first)
        assert one.state("w").orphans == 0
    one_dump, other_dump = dump(fleet, W), dump(other, W)
    assert [line for line in one_dump if b'"held"' in line] == [
        line for line in other_dump if b'"held"' in line
    ]
