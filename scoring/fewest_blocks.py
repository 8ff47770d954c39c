"""The linear cost of another router, rebuilt from its published formula to be measured against.

    credit  = 1 · blocks on GPU + 0.75 · on host + 0.25 · in storage
    prefill = max(blocks queued for prefill + blocks of the prompt − credit, 0)
    decode  = blocks that the rank's requests are using, with those of the prompt; a shared one counts once
    cost    = prefill + decode                                            in blocks; the lowest wins

It sees what every policy sees here, predicted blocks included, which count as on GPU. Left out is what
is off there by default: the decay of the credit, the weight of a request, output blocks, drawing by
temperature, preferred workers.

Source: Dynamo 1.6, KV router, the default selector and its default weights.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from indexer.match import Prompt, RankMatch
from protocol import BlockKey
from scoring.decision import Reason
from scoring.ranking import Option, Ranking, load_ms, ranked
from scoring.weighing import Weighing
from scoring.worker_table import RankRow

HOST_CREDIT = 0.75
STORAGE_CREDIT = 0.25


class _Use(NamedTuple):
    """The blocks that one request uses."""

    row: RankRow
    keys: Sequence[BlockKey]


class FewestBlocks:
    """The rank with the fewest blocks to prefill and to keep; by load where the prompt is not known.

    Holds the blocks of open requests and nothing else, and is bounded by those. O(ranks × blocks).
    """

    def __init__(self) -> None:
        self._uses: dict[Prompt, _Use] = {}
        self._active: dict[RankRow, Counter[BlockKey]] = {}

    def order(self, weighing: Weighing, rng: Random, now: float) -> Ranking:  # noqa: ARG002
        """By cost in blocks."""
        size, keys = _blocks(weighing)
        if not size:
            return Ranking(ranked(weighing.options, load_ms, rng)[0], Reason.LOAD_ONLY)
        length = weighing.prompt_tokens or 0

        def cost(option: Option) -> float:
            prefill = (option.queued_tokens + length - _credit_tokens(option.match)) / size
            return max(prefill, 0.0) + self._blocks_in_use(option.row, keys)

        options, num_best = ranked(weighing.options, cost, rng)
        return Ranking(options, Reason.TIE if num_best > 1 else Reason.FEWEST_BLOCKS)

    def chose(self, weighing: Weighing, row: RankRow, now: float) -> None:  # noqa: ARG002
        """The rank uses the prompt's blocks until the request ends."""
        size, keys = _blocks(weighing)
        if size and weighing.prompt is not None:
            self._uses[weighing.prompt] = _Use(row, keys)
            self._active.setdefault(row, Counter()).update(keys)

    def ended(self, row: RankRow, prompt: Prompt | None) -> None:
        """Its blocks are no longer in use; those of a rank that has left were forgotten."""
        use = None if prompt is None else self._uses.pop(prompt, None)
        active = self._active.get(row)
        if use is None or active is None:
            return
        for key in use.keys:
            active[key] -= 1
            if not active[key]:
                del active[key]

    def forget(self, row: RankRow) -> None:
        """Nothing of it is in use."""
        self._active.pop(row, None)

    def check(self) -> None:
        """Verify that the blocks in use are those of the open requests."""
        expected: dict[RankRow, Counter[BlockKey]] = {row: Counter() for row in self._active}
        for row, keys in self._uses.values():
            if row in expected:
                expected[row].update(keys)
        assert expected == self._active, (expected, self._active)

    def _blocks_in_use(self, row: RankRow, keys: Iterable[BlockKey]) -> int:
        """Distinct blocks on the rank if the prompt went there."""
        active = self._active.get(row)
        if active is None:
            return len(set(keys))
        return len(active) + len(set(keys).difference(active))


def _blocks(weighing: Weighing) -> tuple[int, Sequence[BlockKey]]:
    """Block size and keys in which this request is counted; size 0 where its prompt is not known."""
    sizes = [one.match.block_size for one in weighing.options if one.match is not None]
    if weighing.prompt is None or not sizes:
        return 0, ()
    size = max(sizes)
    return size, weighing.prompt.keys(size)


def _credit_tokens(match: RankMatch | None) -> float:
    if match is None:
        return 0.0
    blocks = (
        match.gpu_blocks
        + match.predicted_blocks
        + HOST_CREDIT * match.host_pinned_blocks
        + STORAGE_CREDIT * match.storage_blocks
    )
    return blocks * match.block_size
