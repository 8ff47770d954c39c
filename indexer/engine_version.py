"""Engine versions as numbers, and those whose events are not to be believed."""

import re

from protocol import EngineKind

_SGLANG_BELIEVED = (0, 5, 15)


def are_events_believed(engine: EngineKind, version: str | None) -> bool:
    """Whether the events of this engine say what its cache holds.

    SGLang before 0.5.15 hashes blocks by content alone or splits nodes without storing them again, and
    lets ranks collide on one port. An unknown version is believed.

    Source: SGLang 0.4.7 to 0.5.15, recorded streams of each.
    """
    if engine is not EngineKind.SGLANG:
        return True
    numbers = version_numbers(version)
    return numbers is None or numbers >= _SGLANG_BELIEVED


def version_numbers(version: str | None) -> tuple[int, int, int] | None:
    """The first three numbers of a version; None where it tells none."""
    found = None if version is None else re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        return None
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch or 0)
