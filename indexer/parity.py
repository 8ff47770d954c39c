"""Do our keys agree with the engine's? Every block an event stores answers for a block we dispatched.

A request whose prompt the rank did not hold makes the engine store new blocks; at least one of them must
be one of the prompt's. Where stores keep coming and none of them ever is, the two sides do not see the
same tokens: another template or tokenizer, another model, another namespace.

Of each such request a few blocks are kept, and events are held against them whenever somebody asks. So it
does not matter when the events come, nor whether the blocks are still predicted by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from indexer.block_index import Ref
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims
from indexer.slot_bits import ANNOUNCED
from protocol import BlockKey, KeySpace

SETTLE_S = 10.0
"""Events for a request are overdue so long after its end."""

_REQUESTS = 3
_SAMPLED = 4


@dataclass(frozen=True, slots=True)
class _Sample:
    """Blocks of one request that the engine must have stored, at most four."""

    key_space: KeySpace
    keys: Sequence[BlockKey]
    decided_at: float
    ended_at: float


class Parity:
    """Requests of one rank that no event has confirmed: the first three, and the last one."""

    def __init__(self, claims: RankClaims) -> None:
        self._claims = claims
        self._unconfirmed: list[_Sample] = []
        self._latest: _Sample | None = None
        self._stored_before = 0

    @property
    def num_unconfirmed(self) -> int:
        """Such requests since the last confirmation, at most three."""
        return len(self._unconfirmed)

    def served(
        self, blocks: PromptBlocks, num_held: int, num_stored: int, decided_at: float, now: float
    ) -> None:
        """A request ended, and the engine must have stored blocks of it.

        Args:
            num_held: leading blocks that it held before.
            num_stored: blocks that events have stored on GPU so far.
            decided_at: when the request was planned.
        """
        last = blocks.num_reusable
        step = max(1, (last - num_held) // _SAMPLED)
        keys = blocks.keys[num_held:last:step][:_SAMPLED]
        sample = _Sample(blocks.key_space, keys, decided_at, now)
        if self._is_confirmed(sample):
            self.clear()
            return
        if not self._unconfirmed:
            self._stored_before = num_stored
        if len(self._unconfirmed) < _REQUESTS:
            self._unconfirmed.append(sample)
        self._latest = sample

    def settle(self) -> None:
        """Start anew if an event has confirmed a request."""
        if self._is_any_confirmed():
            self.clear()

    def clear(self) -> None:
        """What was served before says nothing about what comes."""
        self._unconfirmed.clear()
        self._latest = None

    def is_broken(self, num_stored: int, now: float) -> bool:
        """Three requests, events for all of them overdue, and stores of nothing but other blocks."""
        return (
            len(self._unconfirmed) == _REQUESTS
            and now - self._unconfirmed[-1].ended_at >= SETTLE_S
            and num_stored - self._stored_before >= _REQUESTS
            and not self._is_any_confirmed()
        )

    def check(self) -> None:
        """Verify the bounds."""
        assert len(self._unconfirmed) <= _REQUESTS
        assert (self._latest is None) == (not self._unconfirmed)
        assert all(0 < len(sample.keys) <= _SAMPLED for sample in self._unconfirmed)

    def _is_any_confirmed(self) -> bool:
        if self._latest is None:
            return False
        return self._is_confirmed(self._latest) or any(map(self._is_confirmed, self._unconfirmed))

    def _is_confirmed(self, sample: _Sample) -> bool:
        """Whether events announced one of the blocks, be it gone by now."""
        claims, keys = self._claims, sample.keys
        space = claims.index.find(sample.key_space)
        if space is not None:
            held = claims.index.slot_bits(space, keys, claims.slot)
            if any(bits & ANNOUNCED for bits in held):
                return True
        departed = claims.departures.values()
        since = sample.decided_at
        return any(left.has_left(Ref(key), since) for left in departed for key in keys)
