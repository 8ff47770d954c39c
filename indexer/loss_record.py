"""What a rank has lost, by cause."""

from dataclasses import dataclass


@dataclass(slots=True)
class LossRecord:
    """Losses of one cause since the rank was last known in full; ``last_at`` is the last one's time, monotonic seconds."""

    count: int = 0
    last_at: float = 0.0
