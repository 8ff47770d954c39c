"""Lengths and codings that an answer declares, or does not."""

import pytest

from router.answer_framing import declares_body, is_unframed
from router.headers import RawHeader


@pytest.mark.parametrize(
    ("headers", "unframed", "declares"),
    [
        ([], True, False),
        ([(b"X-Content-Length", b"5")], True, False),
        ([(b"Content-LENGTH", b"5")], False, True),
        ([(b"a", b"b"), (b"content-length", b" 0 ")], False, False),
        ([(b"content-length", b"00")], False, True),
        ([(b"Transfer-Encoding", b"chunked")], False, True),
    ],
)
def test_what_is_declared(headers: list[RawHeader], *, unframed: bool, declares: bool) -> None:
    assert is_unframed(headers) is unframed
    assert declares_body(headers) is declares
