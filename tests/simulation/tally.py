"""What simulations have met, counted by name: a fault that never comes is a test that cannot fail."""

from collections import Counter
from enum import StrEnum

from indexer import Trust
from tests.simulation.fleet_scenario import PAGE_SIZES, Replay
from worker.tree import EvictionPolicy, WritePolicy

Tally = Counter[str]


class Met(StrEnum):
    """What happens to messages, connections, processes and caches."""

    SENT = "message sent"
    DROPPED = "message dropped"
    DUPLICATED = "message duplicated"
    DELAYED = "message delayed"
    BEFORE_SUBSCRIPTION = "message before the subscription"
    FOREIGN_MESSAGE = "foreign message"
    UNREADABLE = "unreadable payload"
    DISCONNECTED = "disconnect"
    NOTICED_LATE = "disconnect noticed with the reconnect"
    PARTITIONED = "partition"
    HEALED_QUIETLY = "network that heals without a reconnect"
    RESTARTED = "restart"
    RESTARTED_WITHOUT_REPLAY = "restart without replay"
    RESTARTED_UNSEEN = "restart behind a reconnect"
    CLEARED = "clear"
    CLEAR_STORM = "storm of clears"
    LEFT = "client left"
    LATE_JOIN = "late join"
    SHARED_SOCKET = "ranks on one socket"
    WITH_TOPIC = "replay with a topic frame"
    WITHOUT_TOPIC = "replay without a topic frame"
    LATE_REPLY = "replay late"
    BROKEN_OFF = "replay broken off"
    SKIPPED = "replayed batch left out"
    BEGINS_LATE = "replay of a short buffer"
    FOREIGN_REPLY = "foreign reply"
    GARBLED_REPLY = "garbled reply"
    SALTS = "salts"
    ADAPTERS = "adapters"
    COLLIDING = "colliding namespaces"
    EAGLE = "eagle pairs"
    STORAGE = "shared storage"
    IN_PARTS = "batches in parts"
    LOST = "ranks with a loss"
    REPAIRED = "ranks rebuilt after a loss"
    BLIND = "restart that nothing heard can reveal"
    COMPARED = "blocks of exact ranks compared"
    COMPARED_HOST = "host blocks of exact ranks compared"
    CREDITED = "blocks credited to prompts"


def replay_of(kind: Replay) -> str:
    """A publisher that answers so was asked for a replay, or would have been, had it a socket."""
    return f"replay: {kind}"


def ended(trust: Trust) -> str:
    """A rank is at rest."""
    return f"ended: {trust}"


def policy_of(policy: WritePolicy | EvictionPolicy) -> str:
    """An engine's."""
    return f"policy: {policy}"


def page_of(size: int) -> str:
    """An engine's."""
    return f"page: {size}"


EVERY_KIND: tuple[str, ...] = (
    *(
        met for met in Met if met is not Met.BLIND
    ),  # which may never come, and excuses what it touches
    *map(replay_of, Replay),
    *map(policy_of, [*WritePolicy, *EvictionPolicy]),
    *map(page_of, PAGE_SIZES),
    *map(ended, [Trust.EXACT, Trust.JOINED, Trust.DEGRADED]),
)


def missing(tally: Tally) -> list[str]:
    """What never came."""
    return [kind for kind in EVERY_KIND if not tally[kind]]


def rows(tally: Tally) -> list[str]:
    """Every count, by name, for humans."""
    return [f"{count:>10,} {name}" for name, count in sorted(tally.items())]
