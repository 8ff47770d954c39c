"""Tokens that fit into no header are refused at the start, without a word of them."""

import pytest

from router.bearer_token import token_fault
from router.config import ConfigError, load_config

CASES = [
    ("", "must not be empty"),
    ("tok\n", "begins or ends with a blank or a line break"),
    (" tok", "begins or ends with a blank or a line break"),
    ("to\nk", "has characters beyond the visible ones of ASCII"),
    ("to k", "has characters beyond the visible ones of ASCII"),
    ("t\u00f6k", "has characters beyond the visible ones of ASCII"),
    ("to\udcffk", "has characters beyond the visible ones of ASCII"),
]


@pytest.mark.parametrize("token", ["t", "sk-~!{}", "a=b", "x" * 4096])
def test_a_token(token: str) -> None:
    assert token_fault(token) is None


@pytest.mark.parametrize(("token", "words"), CASES)
@pytest.mark.parametrize("field", ["control_token", "worker_token", "bootstrap.token"])
def test_what_is_none(field: str, token: str, words: str) -> None:
    section, _, name = field.partition(".")
    given = {section: {name: token} if name else token}
    with pytest.raises(ConfigError) as raised:
        load_config(None, given, {})
    assert str(raised.value) == f"{field}: {words}"
