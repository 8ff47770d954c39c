"""The head of a request to a worker, as bytes."""

from collections.abc import Sequence

from router.headers import RawHeader, section

# Without a body these say nothing of its length.
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def request_head(
    method: str, target: str, host: str, headers: Sequence[RawHeader], body_bytes: int
) -> bytes:
    """Request line and header section: ``Host``, the fields as given, the body's length.

    Raises:
        ValueError: a part has a line break or a space where none may stand.
    """
    first = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n".encode()
    if first.count(b"\n") != 2 or first.count(b"\r") != 2 or first.count(b" ") != 3:
        raise ValueError("a method, a target or a host has a space or a line break")
    if body_bytes or method not in _BODILESS:
        return b"%bContent-Length: %d\r\n\r\n" % (first + section(headers), body_bytes)
    return first + section(headers) + b"\r\n"
