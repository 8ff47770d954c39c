"""Removals from HOST, on a rank with unbroken events, that no announced store accounts for."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol import EngineHash


@dataclass(slots=True)
class StrangeRemovals:
    """Those of one rank.

    Attributes:
        num_blocks: without a pause of ``hold_s`` in between.
        last_at: when the last ones were removed, monotonic seconds.
        example: the last one.
    """

    num_blocks: int = 0
    last_at: float = 0.0
    example: EngineHash = 0

    def note(self, hashes: Sequence[EngineHash], now: float, hold_s: float) -> None:
        """Some more, at least one; counting begins anew where the last ones are older than ``hold_s``."""
        if not self.num_blocks or now - self.last_at > hold_s:
            self.num_blocks = 0
        self.num_blocks += len(hashes)
        self.last_at, self.example = now, hashes[-1]
