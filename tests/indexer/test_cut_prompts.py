"""Prompts that are known up to their first image: their blocks count, the engine's reports on the rest do not."""

import pytest

from indexer.match import Prompt
from indexer.trust import Trust
from protocol import BlockStored, pack_tokens
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names

NUM_BEFORE, NUM_AFTER = 4, 6
TEXT = blocks(0, NUM_BEFORE)
PLACEHOLDERS = [9] * (SIZE * NUM_AFTER)


def cut(tokens: list[int]) -> Prompt:
    return Prompt(pack_tokens(tokens), "m", is_cut=True)


def stores(first: int, image: str | int, tokens: list[int] | None = None) -> BlockStored:
    """A prompt with an image after its text, as vLLM tells it."""
    keys: list[list[object] | None] = [None] * NUM_BEFORE
    keys += [[[image, -SIZE * i]] for i in range(NUM_AFTER)]
    tokens = [*(tokens or TEXT), *PLACEHOLDERS]
    hashes = [*names(0, NUM_BEFORE), *names(100 + first, NUM_AFTER)]
    return BlockStored(hashes, None, tokens, SIZE, "GPU", extra_keys=keys)


def test_text_before_an_image_is_credited_whichever_image_follows() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", stores(0, "cat"))
    before = [*TEXT, 9, 9]  # a part of the next block that is sure, too
    assert fleet.run("w", cut(before)) == (NUM_BEFORE, 0, 0)
    fleet.apply("w", stores(10, "dog"))
    assert fleet.run("w", cut(before)) == (NUM_BEFORE, 0, 0)
    assert fleet.run("w", cut([*TEXT[:-1], 99])) == (NUM_BEFORE - 1, 0, 0)
    # the very placeholders, without an image: another prompt
    assert fleet.run("w", Prompt(pack_tokens(TEXT + PLACEHOLDERS), "m")) == (NUM_BEFORE, 0, 0)


@pytest.mark.parametrize("image", ["cat", 7])
@pytest.mark.parametrize("cached_blocks", [0, NUM_BEFORE, NUM_BEFORE + NUM_AFTER])
def test_reports_on_the_rest_prove_nothing(image: str | int, cached_blocks: int) -> None:
    """An engine that hashes images in ways of its own, or puts them elsewhere: no finding comes of it."""
    fleet = SmallFleet("w")
    for i in range(12):
        tokens = blocks(1_000 * i, NUM_BEFORE)
        elsewhere = blocks(50_000 + 1_000 * i, NUM_BEFORE)
        fleet.serve("w", cut(tokens), SIZE * cached_blocks, [stores(20 * i, image, elsewhere)])
        fleet.wait(1.0)
    fleet.wait(15.0)
    assert fleet.findings() == {}
    assert fleet.state("w").purges == 0
    assert fleet.state("w").reported_blocks == 12 * min(cached_blocks, NUM_BEFORE)


def test_an_engine_without_events_is_known_by_the_text_it_served() -> None:
    fleet = SmallFleet("w", trust=Trust.NONE)
    fleet.serve("w", cut(TEXT), 0)
    match = fleet.match("w", cut(TEXT))
    assert (match.gpu_blocks, match.observed_blocks) == (NUM_BEFORE, NUM_BEFORE)
