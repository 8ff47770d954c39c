"""Text of others that is kept or shown: bounded, and of characters that can be written."""

import re
from ipaddress import IPv6Address

MAX_TEXT = 512
_MAX_HOST = 253
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_CUT = "…"


def plain(text: str, max_chars: int = MAX_TEXT) -> str:
    """The text on one line: cut to ``max_chars`` and a mark, white space as spaces, ``?`` for what is not printable.

    O(``max_chars``). Nothing in it can move a cursor, begin a line of a log or fail to be written.
    """
    cut = text if len(text) <= max_chars else text[:max_chars] + _CUT
    if cut.isprintable():
        return cut
    return "".join(map(_printable, cut))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "?"


def writable(text: str) -> str:
    """The text with ``?`` for each lone surrogate, which JSON may name and UTF-8 cannot write."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_plain(text: str, max_chars: int = MAX_TEXT) -> bool:
    """Is every character printable, and are there no more than that?"""
    return len(text) <= max_chars and text.isprintable()


def is_host(text: str) -> bool:
    """Is it a host name or an address, in ASCII and without brackets?"""
    if ":" in text:
        return is_ipv6(text)
    return 0 < len(text) <= _MAX_HOST and _HOST.fullmatch(text) is not None


def is_ipv6(text: str) -> bool:
    """Is it an address of IPv6, perhaps with a zone?"""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return len(text) <= _MAX_HOST and text.isascii() and text.isprintable()
