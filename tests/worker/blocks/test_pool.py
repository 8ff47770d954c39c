"""Blocks: who is taken next, what is found, and what is announced of it."""

import pytest

from protocol import BlockRemoved, BlockStored
from worker.blocks.block_events import BlockEvents
from worker.blocks.block_name import BlockChain, BlockName, engine_hash
from worker.blocks.config import BlockConfig
from worker.blocks.pool import BlockPool

CONFIG = BlockConfig(2, 16)


def pool_of(num_blocks: int) -> tuple[BlockPool, BlockEvents]:
    """An empty pool, and what it announces."""
    events = BlockEvents(CONFIG)
    return BlockPool(num_blocks, events), events


def names_of(*tokens: int) -> list[BlockName]:
    """Of the blocks of a prompt."""
    return BlockChain(2).names(tokens)


def test_blocks_without_a_name_are_taken_first_then_the_longest_unused_from_its_tail() -> None:
    pool, events = pool_of(6)
    first, second = names_of(1, 2, 3, 4), names_of(5, 6)
    one, other = pool.take(3), pool.take(1)
    pool.fill(one[:2], first)
    pool.fill(other, second)
    pool.give(one)
    pool.give(other)
    assert pool.take(3) == [one[2], *pool._blocks[4:]]
    events.take()
    assert pool.take(3) == [one[1], one[0], other[0]]
    removed = [event.block_hashes for event in events.take() if isinstance(event, BlockRemoved)]
    expected = [first[1], first[0], second[0]]
    assert removed == [[engine_hash(name.digest, is_whole=False)] for name in expected]
    pool.check()


def test_a_block_in_use_is_not_taken_and_is_found() -> None:
    pool, _ = pool_of(2)
    (name,) = names_of(1, 2)
    blocks = pool.take(1)
    pool.fill(blocks, [name])
    assert pool.find(name.digest) is blocks[0]
    pool.use(blocks)
    pool.give(blocks)
    assert pool.num_free == 1
    with pytest.raises(ValueError, match="2 blocks taken, 1 free"):
        pool.take(2)
    pool.give(blocks)
    with pytest.raises(ValueError, match="nobody has it"):
        pool.give(blocks)
    pool.check()


def test_of_two_blocks_of_one_name_the_other_is_found_when_one_goes() -> None:
    pool, events = pool_of(2)
    (name,) = names_of(1, 2)
    first, second = pool.take(1), pool.take(1)
    pool.fill(first, [name])
    pool.fill(second, [name])
    assert pool.find(name.digest) is first[0]
    pool.give(first)
    assert pool.take(1) == first
    assert pool.find(name.digest) is second[0]
    kinds = [type(event) for event in events.take()]
    assert kinds == [BlockStored, BlockStored, BlockRemoved]


def test_a_pool_in_use_is_not_cleared() -> None:
    pool, _ = pool_of(2)
    blocks = pool.take(1)
    with pytest.raises(ValueError, match="1 blocks are in use"):
        pool.clear()
    pool.give(blocks)
    pool.clear()
    pool.check()


def test_check_names_what_is_broken() -> None:
    pool, _ = pool_of(2)
    (block,) = pool.take(1)
    block.num_refs = 0
    with pytest.raises(AssertionError, match="unused"):
        pool.check()
    block.num_refs = 1
    block.name = names_of(1, 2)[0]
    with pytest.raises(AssertionError, match="named"):
        pool.check()


def test_names_are_those_of_the_engine() -> None:
    """As vLLM 0.32.0 was recorded to name the tokens 10 … 73 in blocks of 32."""
    first, second = BlockChain(32).names(range(10, 74))
    assert engine_hash(first.digest, is_whole=False) == 4983110391196617255
    assert engine_hash(second.digest, is_whole=False) == 8832359988540648073
    assert engine_hash(first.digest, is_whole=True) == first.digest
    assert len(first.digest) == 32
    assert second.parent == first.digest


def test_a_disabled_recorder_records_nothing() -> None:
    events = BlockEvents(BlockConfig(2, 16, events_enabled=False))
    events.stored(names_of(1, 2))
    events.removed(b"x" * 32)
    events.cleared()
    assert not events.take()


@pytest.mark.parametrize("sizes", [(0, 16, 0, 1), (2, -1, 0, 1), (2, 16, -1, 1), (2, 16, 16, 0)])
def test_bad_sizes_are_refused(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|negative"):
        BlockConfig(*sizes)
