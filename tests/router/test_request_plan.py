"""What the brain is asked, as far as it depends on what the client calls its session."""

import orjson
import pytest

from prompt import Api, view_request
from router.headers import read_request_head
from router.prompt_reader import ReadRequest
from router.request_plan import MAX_SESSION_CHARS, plan_request


@pytest.mark.parametrize(
    ("body", "header", "session"),
    [
        ({"session_id": "a", "prompt_cache_key": "c", "user": "d"}, b"b", "a"),
        ({"prompt_cache_key": "c", "user": "d"}, b"b", "b"),
        ({"prompt_cache_key": "c", "user": "d"}, None, "c"),
        ({"user": "d"}, None, "d"),
        ({"user": "d"}, b"", "d"),
        ({"session_id": 5, "prompt_cache_key": "", "user": ["d"]}, None, None),
        ({}, b"caf\xe9", "café"),
        ({}, None, None),
        ({"user": "d" * 1_000}, None, "d" * MAX_SESSION_CHARS),
        ({}, b"d" * 1_000, "d" * MAX_SESSION_CHARS),
        (None, b"b", "b"),
        (None, None, None),
    ],
)
def test_the_session_is_what_the_client_calls_it(
    body: dict[str, object] | None, header: bytes | None, session: str | None
) -> None:
    raw = [(b"x-other", b"x")] + ([] if header is None else [(b"x-session-id", header)])
    head = read_request_head(raw)
    assert head.forwarded == raw
    view = None if body is None else view_request(Api.CHAT, orjson.dumps(body))
    assert plan_request(Api.CHAT, "r", ReadRequest(view), 0.0, head.session).session == session
