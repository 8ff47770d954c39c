"""Stand-ins begin alike where prompts do, and are like no token of an engine."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt import Api, approximate_tokens, unpack_tokens, view_request
from prompt.prefix_table import common_length

HI = {"role": "user", "content": "Which worker holds it? " * 20}
SO = {"role": "assistant", "content": "The second one."}


def tokens(api: Api, body: dict[str, Any]) -> bytes:
    found = approximate_tokens(view_request(api, orjson.dumps(body)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("api", "before", "after"),
    [
        (Api.CHAT, {"messages": [HI]}, {"messages": [HI, SO, HI], "n": 1}),
        (Api.CHAT, {"tools": [{}], "messages": [HI]}, {"messages": [HI, SO], "tools": [{}]}),
        (Api.MESSAGES, {"system": "S", "messages": [HI]}, {"system": "S", "messages": [HI, SO]}),
        (Api.RESPONSES, {"input": [HI]}, {"input": [HI, SO]}),
        (Api.COMPLETIONS, {"prompt": "a b c " * 50}, {"prompt": "a b c " * 60}),
        (Api.GENERATE, {"text": "a b c " * 50}, {"text": "a b c " * 50 + "d"}),
    ],
)
def test_a_prompt_that_grows_keeps_its_beginning(
    api: Api, before: dict[str, Any], after: dict[str, Any]
) -> None:
    one, other = tokens(api, before), tokens(api, after)
    assert len(one) - common_length(one, other) <= 8
    assert len(other) >= len(one)


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt"])
def test_what_begins_in_an_engines_memory_has_no_beginning_here(name: str) -> None:
    body = {"input": [HI], name: "r1"}
    assert approximate_tokens(view_request(Api.RESPONSES, orjson.dumps(body))) is None
    assert tokens(Api.RESPONSES, {"input": [HI], name: None})


@given(st.text())
def test_none_is_a_token_of_an_engine(text: str) -> None:
    found = approximate_tokens(view_request(Api.COMPLETIONS, orjson.dumps({"prompt": text})))
    assert found is None or all(token > 1 << 27 for token in unpack_tokens(found))


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (Api.CHAT, b"{}"),
        (Api.CHAT, b'{"messages": []}'),
        (Api.COMPLETIONS, b'{"prompt": ""}'),
        (Api.COMPLETIONS, b'{"prompt": "\\ud800"}'),
        (Api.COMPLETIONS, b'{"prompt": "%b"}' % (b"a" * (4 << 20))),
        (Api.OTHER, b'{"prompt": "a"}'),
    ],
)
def test_what_has_none(api: Api, body: bytes) -> None:
    assert approximate_tokens(view_request(api, body)) is None
