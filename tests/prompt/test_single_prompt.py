"""Token ids that a request brings itself need no tokenizer."""

import json
from typing import Any

import pytest

from prompt import Api, NoTokensError, NoTokensReason, given_tokens, view_request
from prompt.tokenizer import unpack_tokens


def given(api: Api, body: dict[str, Any]) -> list[int] | None:
    tokens = given_tokens(view_request(api, json.dumps(body).encode()))
    return None if tokens is None else unpack_tokens(tokens)


@pytest.mark.parametrize(
    ("api", "body", "expected"),
    [
        (Api.COMPLETIONS, {"prompt": [1234, 5]}, [1234, 5]),
        (Api.COMPLETIONS, {"prompt": [[1234, 5]]}, [1234, 5]),
        (Api.COMPLETIONS, {"prompt": [0, 0xFFFFFFFF]}, [0, 0xFFFFFFFF]),
        (Api.GENERATE, {"input_ids": [7, 8]}, [7, 8]),
        (Api.GENERATE, {"text": None, "input_ids": [[7, 8]]}, [7, 8]),
        (Api.COMPLETIONS, {"prompt": "hi"}, None),
        (Api.COMPLETIONS, {"prompt": ["hi"]}, None),
        (Api.GENERATE, {"text": "hi"}, None),
        (Api.GENERATE, {"text": "hi", "input_ids": [7]}, None),
        (Api.CHAT, {"messages": [{"role": "user", "content": "hi"}]}, None),
        (Api.CHAT, {"messages": [], "kv_transfer_params": {"prompt_token_ids": [7]}}, None),
        (Api.RESPONSES, {"input": "hi"}, None),
    ],
)
def test_ids_stand_for_themselves(
    api: Api, body: dict[str, Any], expected: list[int] | None
) -> None:
    assert given(api, body) == expected


@pytest.mark.parametrize(
    ("api", "body", "reason"),
    [
        (Api.COMPLETIONS, {"prompt": [[1], [2]]}, NoTokensReason.BATCHED_PROMPT),
        (Api.COMPLETIONS, {"prompt": ["a", "b"]}, NoTokensReason.BATCHED_PROMPT),
        (Api.GENERATE, {"input_ids": [[1], [2]]}, NoTokensReason.BATCHED_PROMPT),
        (Api.COMPLETIONS, {"prompt": []}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [-1]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [1 << 32]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [1, "a"]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {}, NoTokensReason.NOT_A_PROMPT),
        (Api.GENERATE, {"input_ids": [1], "image_data": ["x"]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.COMPLETIONS, {"prompt": [1], "truncate_prompt_tokens": 5}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.COMPLETIONS, {"prompt": [1], "suffix": "x"}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.COMPLETIONS, {"prompt": [1.0]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [None]}, NoTokensReason.NOT_A_PROMPT),
    ],
)  # fmt: skip
def test_what_no_tokenizer_would_help(
    api: Api, body: dict[str, Any], reason: NoTokensReason
) -> None:
    with pytest.raises(NoTokensError) as caught:
        given(api, body)
    assert caught.value.reason is reason
