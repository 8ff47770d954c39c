"""Policies by name."""

from collections.abc import Callable
from enum import StrEnum

from scoring.consistent_hash import ConsistentHash
from scoring.fewest_blocks import FewestBlocks
from scoring.plain_policies import (
    LeastLoad,
    LongestPrefix,
    LowestCost,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
)
from scoring.policy import Policy
from scoring.session_affinity import MAX_IDLE_S, MAX_SESSIONS, SessionAffinity
from scoring.threshold_switch import ThresholdSwitch


class PolicyName(StrEnum):
    """Every policy that can be chosen."""

    COST = "cost"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_LOAD = "least_load"
    POWER_OF_TWO = "power_of_two"
    PREFIX_ONLY = "prefix_only"
    CONSISTENT_HASH = "consistent_hash"
    SESSION = "session"
    LINEAR = "linear"
    SWITCH = "switch"


_POLICIES: dict[PolicyName, Callable[[], Policy]] = {
    PolicyName.COST: LowestCost,
    PolicyName.ROUND_ROBIN: RoundRobin,
    PolicyName.RANDOM: RandomChoice,
    PolicyName.LEAST_LOAD: LeastLoad,
    PolicyName.POWER_OF_TWO: PowerOfTwo,
    PolicyName.PREFIX_ONLY: LongestPrefix,
    PolicyName.CONSISTENT_HASH: ConsistentHash,
    PolicyName.LINEAR: FewestBlocks,
    PolicyName.SWITCH: ThresholdSwitch,
}


def make_policy(
    name: PolicyName, max_sessions: int = MAX_SESSIONS, max_session_idle_s: float = MAX_IDLE_S
) -> Policy:
    """A policy by name, with no history; the bounds are those of `SessionAffinity`."""
    if name is PolicyName.SESSION:
        return SessionAffinity(max_sessions, max_session_idle_s)
    return _POLICIES[name]()
