"""What a stream does with the next message: apply it, or hold it until a replay has been heard."""

from enum import StrEnum


class Mode(StrEnum):
    """FOLLOW and CHECK apply live batches as they come, every other mode holds them."""

    FOLLOW = "follow"  # no replay is wanted
    JOIN = "join"  # replay from 0 with nothing known
    GAP = "gap"  # replay from the first missing number
    PROBE = "probe"  # replay of the last number: is it the same process?
    CHECK = "check"  # the same out of caution; live batches go on
    REBUILD = "rebuild"  # replay from 0 with claims in doubt
    SUSPENDED = "suspended"  # the connection broke during a replay

    @property
    def is_holding(self) -> bool:
        """Whether live batches wait."""
        return self not in (Mode.FOLLOW, Mode.CHECK)
