"""What a scheduler asks of one rank's cache, whichever engine's it is.

A request's life against it:

    arrive ─▶ is_ready ─▶ admit ─▶ plan, extend (prefill, piece by piece) ─▶ plan (each token) ─▶ end
                 ▲                                                             │
                 └────────────────────────── retract ◀─────────────────────────┘

Slots are tokens. Nothing here knows a clock: copies are given their times by ``note``.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from protocol import EngineHash, KvEvent
from worker.request import EngineRequest, Sequence
from worker.tree import StoragePage


class EngineCache(Protocol):
    """The cache of one rank, as far as the engine around it goes."""

    @property
    def capacity(self) -> int:
        """Slots that one request can have at most."""
        ...

    @property
    def usage(self) -> float:
        """Share of the device pool in use, as the engine itself reports it."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether no copy is in flight."""
        ...

    @property
    def num_events(self) -> int:
        """Events that wait for ``take_events``."""
        ...

    def slots_needed(self, num_tokens: int) -> int:
        """Slots that the KV of so many tokens takes."""
        ...

    def arrive(self, sequence: Sequence, now: float) -> None:
        """A request is here: what it may need from storage starts to come."""
        ...

    def is_ready(self, sequence: Sequence) -> bool:
        """Whether nothing comes any more that its admission waits for."""
        ...

    def admit(self, sequence: Sequence, headroom: int) -> bool:
        """Hold the cached prefix, and slots for all tokens that the request has so far.

        At least one of them stays to be computed. Sets ``computed``, ``copied_tokens``, and ``usage`` at the first time.

        Args:
            headroom: slots that must stay free or evictable for the answers of others.

        Returns:
            False, with nothing held, if there is no room now.
        """
        ...

    def plan(self, sequence: Sequence, num_tokens: int) -> bool:
        """So many tokens more are computed by the batch being made.

        Returns:
            False, with nothing changed, if there are no slots for them.
        """
        ...

    def extend(self, sequence: Sequence) -> None:
        """``computed`` has grown by prefill: what fills blocks is cached; the request goes on."""
        ...

    def retract(self, sequence: Sequence) -> None:
        """Take back everything that a request holds; it will be admitted anew."""
        ...

    def end(self, sequence: Sequence) -> None:
        """Cache what was computed, give back everything, and forget the request."""
        ...

    def note(self, now: float) -> None:
        """Copies issued since the last call have started."""
        ...

    def settle(self, now: float) -> bool:
        """Complete every copy that is due; whether slots may have become free by it."""
        ...

    def next_due(self) -> float | None:
        """Engine time at which the next copy is due."""
        ...

    def reset(self, *, keeps_host: bool = False) -> None:
        """Empty the cache, which no request uses, and announce it.

        Args:
            keeps_host: leave the host tier as it is, where the engine has it apart.
        """
        ...

    def take_events(self) -> list[KvEvent]:
        """Hand over what was recorded since the last call, in order."""
        ...

    def lookup_pages(self, request: EngineRequest) -> list[StoragePage]:
        """Every page that storage may be asked for on behalf of a request."""
        ...

    def residency(self) -> Mapping[str, Iterable[EngineHash]]:
        """Engine hashes of what is truly held, by medium. O(blocks)."""
        ...

    def pools(self) -> Mapping[str, int]:
        """Sizes and free slots of every pool, by name."""
        ...

    def counters(self) -> dict[str, int]:
        """Everything counted since construction, by name."""
        ...

    def check(self) -> None:
        """Verify every invariant, that slots add up among them. O(blocks)."""
        ...
