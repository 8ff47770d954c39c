"""Where each request of an engine stands.

arrivals ─▶ waiting ─▶ chunked ─▶ running ─▶ gone
               ▲    (a prompt that was cut)
               └────── preempted: to the front ──┘
"""

from collections import deque

from worker.batch import Piece
from worker.request import Sequence


class Lineup:
    """All requests of one engine, each in one place.

    Attributes:
        waiting: without slots, next one first.
        prefilling: of the batch that runs.
        chunked: its prompt goes on in the next batch.
        running: whose answers grow, in the order of their admission.
    """

    def __init__(self) -> None:
        self.waiting: deque[Sequence] = deque()
        self.prefilling: dict[str, Sequence] = {}
        self.chunked: Sequence | None = None
        self.running: dict[str, Sequence] = {}
        self._arrivals: deque[Sequence] = deque()
        self._sequences: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._sequences

    @property
    def num_waiting(self) -> int:
        """Requests without slots."""
        return len(self._arrivals) + len(self.waiting)

    @property
    def num_admitted(self) -> int:
        """Requests with slots."""
        return len(self._sequences) - self.num_waiting

    @property
    def next_arrival(self) -> float | None:
        """Engine time at which the next request is looked at."""
        return self._arrivals[0].arrived_at if self._arrivals else None

    def get(self, request_id: str) -> Sequence | None:
        """The request of this id, if it is here."""
        return self._sequences.get(request_id)

    def add(self, sequence: Sequence) -> None:
        """Take a new request."""
        self._sequences[sequence.id] = sequence
        self._arrivals.append(sequence)

    def arrived(self, now: float) -> list[Sequence]:
        """Those that have arrived since the last call; they wait from here on."""
        arrived: list[Sequence] = []
        while self._arrivals and self._arrivals[0].arrived_at <= now:
            arrived.append(self._arrivals.popleft())
        self.waiting.extend(arrived)
        return arrived

    def prefill(self, pieces: tuple[Piece, ...]) -> None:
        """These are computed by the batch that runs from here on."""
        self.prefilling = {piece.sequence.id: piece.sequence for piece in pieces}
        if self.chunked is not None and self.chunked.id in self.prefilling:
            self.chunked = None

    def prefilled(self, sequence: Sequence) -> None:
        """Its piece is computed: the prompt goes on, or the answer begins."""
        del self.prefilling[sequence.id]
        if sequence.num_uncomputed:
            self.chunked = sequence
        else:
            self.running[sequence.id] = sequence

    def preempt(self, sequence: Sequence) -> None:
        """Back to the front of those who wait."""
        if sequence is self.chunked:
            self.chunked = None
        else:
            del self.running[sequence.id]
        self.waiting.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a request out, wherever it stands."""
        del self._sequences[sequence.id]
        self.running.pop(sequence.id, None)
        self.prefilling.pop(sequence.id, None)
        for queue in (self._arrivals, self.waiting):
            if sequence in queue:
                queue.remove(sequence)

    def check(self) -> None:
        """Verify that each request is in one place."""
        placed = [*self._arrivals, *self.waiting, *self.running.values(), *self.prefilling.values()]
        if self.chunked is not None:
            placed.append(self.chunked)
        ids = sorted(sequence.id for sequence in placed)
        assert ids == sorted(self._sequences), f"{ids} are not {list(self._sequences)}"
