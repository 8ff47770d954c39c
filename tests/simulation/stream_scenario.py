"""What one seed of the fake network is about: which circumstances, and how often each fault comes."""

from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, each per message, reply, request or second."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    garble: float = 0.0
    nonsense: float = 0.0  # frames that are no message
    restart: float = 0.0  # per second
    disconnect: float = 0.0  # per second
    replay_hangs: float = 0.0
    replay_breaks_off: float = 0.0
    replay_skips: float = 0.0  # per reply
    delay: float = 0.0  # of a second and more
    foreign: float = 0.0  # a number that no process of ours has come to, with another one's payload
    partition: float = 0.0  # per second: nothing gets through, and nobody is told
    replay_garbles: float = 0.0  # per reply: frames that are none

    def and_more(self, rng: Random) -> "Faults":
        """With those of the second kind, of which each is off in about half of all scenarios."""

        def chance(upper: float) -> float:
            return rng.uniform(0, upper) if rng.random() < 0.5 else 0.0

        return replace(
            self,
            delay=chance(0.05),
            foreign=chance(0.03),
            partition=chance(0.15),
            replay_garbles=chance(0.02),
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one seed is about."""

    has_replay: bool
    num_ranks: int
    buffer_steps: int
    has_first_clear: bool
    has_topic_frame: bool
    is_late_join: bool
    faults: Faults

    @classmethod
    def draw(cls, rng: Random) -> "Scenario":
        """Any mixture of circumstances; each fault is off in about half of all scenarios."""

        def chance(upper: float) -> float:
            return rng.uniform(0, upper) if rng.random() < 0.5 else 0.0

        return cls(
            has_replay=rng.random() < 0.75,
            num_ranks=rng.choice([1, 1, 1, 2, 3]),
            buffer_steps=rng.choice([5, 50, 100_000, 100_000]),
            has_first_clear=rng.random() < 0.5,
            has_topic_frame=rng.random() < 0.5,
            is_late_join=rng.random() < 0.5,
            faults=Faults(
                drop=chance(0.2),
                duplicate=chance(0.1),
                reorder=chance(0.05),
                garble=chance(0.02),
                nonsense=chance(0.05),
                restart=chance(0.1),
                disconnect=chance(0.2),
                replay_hangs=chance(0.6),
                replay_breaks_off=chance(0.3),
                replay_skips=chance(0.02),
            ),
        )
