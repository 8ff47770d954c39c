"""Which stores leave open what their blocks are."""

import pytest

from indexer.block_index import BlockIndex
from indexer.spoken_keys import SpokenKeys
from protocol import BlockStored, Tier

PLAIN = BlockStored([1], None, [1, 2], 2, None)
TOKENLESS = BlockStored([1], None, [], 2, None)
KEYED = BlockStored([1], None, [1, 2], 2, None, extra_keys=[None])


@pytest.mark.parametrize(
    ("earlier", "event", "tier", "lacks"),
    [
        ([], TOKENLESS, Tier.GPU, True),
        ([], PLAIN, Tier.GPU, False),
        ([], PLAIN, Tier.HOST, False),
        ([KEYED], PLAIN, Tier.GPU, False),
        ([KEYED], PLAIN, Tier.HOST, True),
        ([KEYED], KEYED, Tier.HOST, False),
        ([PLAIN], PLAIN, Tier.STORAGE, False),
    ],
)
def test_what_a_store_lacks(
    earlier: list[BlockStored], event: BlockStored, tier: Tier, lacks: bool
) -> None:
    keys = SpokenKeys(BlockIndex(), may_leave_salts_out=True)
    for one in earlier:
        keys.note(one)
    assert keys.lacks_identity(event, tier) is lacks
