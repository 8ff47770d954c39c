"""Token ids that requests bring, where no tokenizer is known."""

from typing import Any

import orjson
import pytest

from prompt import Api, GivenIds, NoTokensError, NoTokensReason, view_request
from protocol import pack_tokens

HI = [{"role": "user", "content": "hi"}]
IDS = {"prompt_token_ids": [1, 2, 3]}


@pytest.mark.parametrize(
    ("api", "body", "reads", "expected"),
    [
        (Api.COMPLETIONS, {"prompt": [1, 2, 3]}, False, [1, 2, 3]),
        (Api.GENERATE, {"input_ids": [[1, 2, 3]]}, False, [1, 2, 3]),
        (Api.CHAT, {"messages": HI, "kv_transfer_params": IDS}, True, [1, 2, 3]),
        (Api.CHAT, {"kv_transfer_params": IDS}, True, [1, 2, 3]),
        (Api.CHAT, {"messages": HI, "kv_transfer_params": IDS}, False, NoTokensReason.NO_TOKENIZER),
        (Api.CHAT, {"messages": HI, **IDS}, True, NoTokensReason.NO_TOKENIZER),
        (Api.CHAT, {"messages": HI, "kv_transfer_params": {"prompt_token_ids": []}}, True, NoTokensReason.NO_TOKENIZER),
        (Api.CHAT, {"messages": HI, "kv_transfer_params": {"prompt_token_ids": [-1]}}, True, NoTokensReason.NOT_A_PROMPT),
        (Api.CHAT, {"kv_transfer_params": IDS, "truncate_prompt_tokens": 2}, True, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.CHAT, {"messages": HI, "kv_transfer_params": IDS, "echo": True}, True, NoTokensReason.NO_TOKENIZER),
        (Api.CHAT, {"messages": [{"content": [{"type": "image"}]}], "kv_transfer_params": IDS}, True, NoTokensReason.NO_TOKENIZER),
        (Api.CHAT, {"messages": HI}, True, NoTokensReason.NO_TOKENIZER),
        (Api.COMPLETIONS, {"prompt": "hi"}, True, NoTokensReason.NO_TOKENIZER),
        (Api.COMPLETIONS, {"prompt": [[1], [2]]}, True, NoTokensReason.BATCHED_PROMPT),
        (Api.MESSAGES, {"messages": HI}, True, NoTokensReason.NO_TOKENIZER),
    ],
)  # fmt: skip
def test_ids(
    api: Api, body: dict[str, Any], *, reads: bool, expected: list[int] | NoTokensReason
) -> None:
    view, found = view_request(api, orjson.dumps(body)), GivenIds(reads_transferred=reads)
    if isinstance(expected, list):
        assert found.prompt_tokens(view).tokens == pack_tokens(expected)
    else:
        with pytest.raises(NoTokensError) as caught:
            found.prompt_tokens(view)
        assert caught.value.reason is expected
