"""Engine versions whose events are not to be believed."""

import re

from protocol import EngineKind

_SGLANG_BELIEVED = (0, 5, 15)


def are_events_believed(engine: EngineKind, version: str | None) -> bool:
    """Whether the events of this engine say what its cache holds.

    SGLang before 0.5.15 hashes blocks by content alone or splits nodes without storing them again, and
    lets ranks collide on one port. An unknown version is believed.

    Source: SGLang 0.4.7 to 0.5.15, recorded streams of each.
    """
    if engine is not EngineKind.SGLANG or version is None:
        return True
    numbers = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if numbers is None:
        return True
    parts = tuple(int(number or 0) for number in numbers.groups())
    return parts >= _SGLANG_BELIEVED
