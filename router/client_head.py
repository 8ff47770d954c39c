"""What is looked at in a client's head before anybody reads the request: its target and its host.

The parser has looked at each character; what they come to is told here.
"""

import re

import httptools

BARE_MARK = "kvroute.bare_mark"  # the extension of a scope whose target ends in "?"
# host [":" port], in the characters of RFC 3986 §3.2; empty where the target has no authority.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")


def read_target(url: bytes) -> tuple[bytes, bytes, bool] | None:
    """Path and query, byte for byte. Of the absolute form the origin is left out, of either the fragment.

    Returns:
        Path, query, and whether it ends in a ``?`` that no query follows; None where it names no path.

    Raises:
        httptools.HttpParserInvalidURLError: it is no URL.

    Source: RFC 9112 §3.2.
    """
    whole, _, _ = url.partition(b"#")
    if whole[:1] == b"/":
        path, mark, query = whole.partition(b"?")
    else:
        parsed = httptools.parse_url(whole)
        path, query, mark = parsed.path or b"/", parsed.query or b"", whole[-1:]
        if path[:1] != b"/":
            return None
    return path, query, mark == b"?" and not query


def is_host(value: bytes) -> bool:
    """May a ``Host`` field say so?"""
    return _HOST.fullmatch(value) is not None
