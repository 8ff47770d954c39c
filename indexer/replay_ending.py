"""How a replay conversation came to its end."""

from enum import StrEnum


class ReplayEnding(StrEnum):
    """How a replay conversation ended.

    COMPLETE: with the end marker: the publisher sent all it had.
    UNREADABLE: with the end marker, after a payload that cannot be read and may be the one that is
        missed: another replay would bring the same.
    GARBLED: with the end marker, after frames of which not even a number can be read.
    SHORT: with the end marker and without a reply of the rank, where the publisher's buffer is known to have
        dropped some of another one's: it may have dropped all of this one's, too.
    CUT: at one of our bounds, with replies still coming.
    FAILED: it never answered, fell silent, or the socket broke.
    """

    COMPLETE = "complete"
    UNREADABLE = "unreadable"
    GARBLED = "garbled"
    SHORT = "short"
    CUT = "cut"
    FAILED = "failed"
