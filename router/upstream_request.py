"""The head of a request to a worker, as bytes."""

from collections.abc import Sequence

from router.headers import RawHeader

# Without a body these say nothing of its length.
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def request_head(
    method: str, target: str, host: str, headers: Sequence[RawHeader], body_bytes: int
) -> bytes:
    """Request line and header section: ``Host``, the fields as given, the body's length.

    Raises:
        ValueError: a part has a line break or a space where none may stand.
    """
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n".encode()]
    lines += [b"%s: %s\r\n" % field for field in headers]
    if body_bytes or method not in _BODILESS:
        lines.append(b"Content-Length: %d\r\n" % body_bytes)
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
        raise ValueError("a field of a request has a line break")
    if " " in target or " " in method:
        raise ValueError("a method or a target has a space")
    return head + b"\r\n"
