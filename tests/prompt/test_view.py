import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt import (
    Api,
    MalformedRequestError,
    RequestView,
    api_of_path,
    computes_whole_prompt,
    view_request,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "model", "stream", "max_tokens", "max_completion_tokens", "sampling_params", "cache_salt", "session_id",
    "lora_path", "extra_key",
)  # fmt: skip


def view(api: Api = Api.CHAT, **fields: Any) -> RequestView:
    return view_request(api, json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", Api.CHAT),
        ("/v1/chat/completions/", Api.CHAT),
        ("/v1/completions", Api.COMPLETIONS),
        ("/generate", Api.GENERATE),
        ("/generate/", Api.GENERATE),
        ("/v1/responses", Api.RESPONSES),
        ("/v1/responses/resp_1", Api.OTHER),
        ("/v1/messages", Api.MESSAGES),
        ("/v1/messages/count_tokens", Api.OTHER),
        ("/v1/embeddings", Api.OTHER),
        ("/v1/Chat/completions", Api.OTHER),
        ("/", Api.OTHER),
        ("", Api.OTHER),
    ],
)
def test_path_stands_for_an_api(path: str, api: Api) -> None:
    assert api_of_path(path) is api


def test_fields_are_picked_and_the_body_kept() -> None:
    body = b'{"model":"m","stream":true,"max_tokens":7,"cache_salt":"s","session_id":"c","x":{"y":[1.0]}}'
    seen = view_request(Api.COMPLETIONS, body)
    assert seen == RequestView(
        api=Api.COMPLETIONS,
        model="m",
        is_streaming=True,
        max_output_tokens=7,
        cache_salt="s",
        adapter=None,
        extra_key=None,
        session_id="c",
        body=json.loads(body),
    )


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
        ({"max_completion_tokens": None, "max_tokens": 5}, 5),
        ({"max_output_tokens": 4}, 4),
        ({"sampling_params": {"max_new_tokens": 3}}, 3),
        ({"sampling_params": [{"max_new_tokens": 3}]}, None),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": -1}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": "5"}, None),
        ({"max_tokens": 5.5}, None),
    ],
)
def test_output_limit(fields: dict[str, Any], limit: int | None) -> None:
    assert view(**fields).max_output_tokens == limit


@pytest.mark.parametrize(
    ("field", "name"),
    [("cache_salt", "cache_salt"), ("lora_path", "adapter"), ("extra_key", "extra_key")],
)
@pytest.mark.parametrize(
    ("value", "seen"),
    [("s", "s"), (["s"], "s"), (["s", "t"], None), ("", None), (5, None), ([], None)],
)
def test_what_keeps_caches_apart(field: str, name: str, value: object, seen: str | None) -> None:
    """Engines take a list of one as the one it holds."""
    fields: dict[str, Any] = {field: value}
    assert getattr(view(**fields), name) == seen


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_a_field_of_any_type_is_survived(fields: dict[str, Any]) -> None:
    seen = view(**fields)
    assert seen.is_streaming is (fields.get("stream") is True)
    assert seen.model is None or seen.model == fields["model"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a":1}{}', "not valid JSON"),
        (b'{"a":"\xff"}', "not valid JSON"),
        (b"\x00" * 100, "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", "not valid JSON"),
        (b"null", "must be a JSON object, not null"),
        (b"true", "must be a JSON object, not a boolean"),
        (b"3", "must be a JSON object, not a number"),
        (b'"a"', "must be a JSON object, not a string"),
        (b"[{}]", "must be a JSON object, not an array"),
    ],
)
def test_what_is_no_object_is_refused_with_a_message(body: bytes, message: str) -> None:
    with pytest.raises(MalformedRequestError, match=message):
        view_request(Api.CHAT, body)


@given(st.binary(max_size=200))
def test_garbage_gives_a_view_or_the_one_error(body: bytes) -> None:
    with contextlib.suppress(MalformedRequestError):
        view_request(Api.CHAT, body)


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"model":"m"}',
        b'{"model":"m","a":NaN,"b":-Infinity}',
        b'{"model":"m","t":"\\ud800"}',
    ],
)
def test_what_engines_parse_is_not_refused(body: bytes) -> None:
    assert view_request(Api.CHAT, body).model == "m"


@pytest.mark.parametrize(
    ("api", "fields", "expected"),
    [
        (Api.CHAT, {}, False),
        (Api.CHAT, {"logprobs": True, "top_logprobs": 5}, False),
        (Api.CHAT, {"prompt_logprobs": 0}, True),
        (Api.COMPLETIONS, {"prompt_logprobs": -1}, True),
        (Api.COMPLETIONS, {"prompt_logprobs": None}, False),
        (Api.COMPLETIONS, {"prompt_logprobs": False}, False),
        (Api.COMPLETIONS, {"echo": True}, False),
        (Api.COMPLETIONS, {"logprobs": 1}, False),
        (Api.COMPLETIONS, {"echo": True, "logprobs": 1}, True),
        (Api.GENERATE, {"return_logprob": True}, False),
        (Api.GENERATE, {"return_logprob": True, "logprob_start_len": -1}, False),
        (Api.GENERATE, {"return_logprob": True, "logprob_start_len": 0}, True),
        (Api.GENERATE, {"return_logprob": [True], "logprob_start_len": "0"}, False),
    ],
)
def test_what_has_its_whole_prompt_computed(
    api: Api, fields: dict[str, Any], *, expected: bool
) -> None:
    assert computes_whole_prompt(view_request(api, json.dumps(fields).encode())) is expected
