"""Storage tiers, and the table that maps the media named on the wire to them."""

from enum import IntEnum


class Tier(IntEnum):
    """Where a block lies, fastest first: the order of the values is the order of speed."""

    GPU = 0
    HOST = 1
    STORAGE = 2


_TIER_OF_MEDIUM = {
    "gpu": Tier.GPU,
    "cpu": Tier.HOST,
    "cpu_pinned": Tier.HOST,
    "cpu_tier1": Tier.HOST,
    "cpu_tier2": Tier.HOST,
    "disk": Tier.STORAGE,
    "fs": Tier.STORAGE,
    "obj": Tier.STORAGE,
    "storage": Tier.STORAGE,
    "external": Tier.STORAGE,
}


def tier_of(medium: str | None) -> Tier | None:
    """Map a medium as published to its tier.

    Args:
        medium: the string on the wire, in any case; None where the event names none.

    Returns:
        The tier; GPU for a missing medium; None for a word that is not in the table, which is to be
        credited nowhere and counted.

    Source: SGLang 0.5.23 ``StorageMedium``, vLLM 0.32.0 offload events, Dynamo's media.
    """
    if medium is None:
        return Tier.GPU
    return _TIER_OF_MEDIUM.get(medium.lower())
