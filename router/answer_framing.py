"""What the header section of a worker's answer says of its body's end.

Names are looked at in whatever case they are written.
"""

from collections.abc import Sequence

from router.headers import RawHeader

CODING = b"transfer-encoding"
_FRAMINGS = frozenset({CODING, b"content-length"})


def is_unframed(headers: Sequence[RawHeader]) -> bool:
    """Does the body end with its connection?"""
    return all(name.lower() not in _FRAMINGS for name, _ in headers)


def declares_body(headers: Sequence[RawHeader]) -> bool:
    """Is there a length other than 0, or a coding?"""
    return any(name.lower() in _FRAMINGS and value.strip() != b"0" for name, value in headers)
