import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt import PromptModelError, TokenizerChoice, bundled_model_dir, load_tokenizer
from prompt.self_check import first_difference
from prompt.tokenizer import FastTokenizer, HfTokenizer, Tokenizer, unpack_tokens
from protocol import TokenBytes, pack_tokens
from tests import needs
from tests.conftest import DATA

BUNDLED = bundled_model_dir() / "tokenizer.json"
RECORDED = DATA / "parity" / "chatml" / "tokenizer.json"
CHOICES = [TokenizerChoice.HF, TokenizerChoice.FAST]


def typed_tokens(tokenizer: HfTokenizer) -> Sequence[str]:
    return [token.content for token in tokenizer.added_tokens()]


def load(path: Path, choice: TokenizerChoice) -> Tokenizer:
    if choice is TokenizerChoice.FAST:
        needs.module("fastokens", extra="fast")
    return load_tokenizer(path, choice)


@pytest.mark.parametrize("choice", CHOICES)
def test_ids_are_packed_and_special_tokens_optional(choice: TokenizerChoice) -> None:
    tokenizer = load(BUNDLED, choice)
    plain = unpack_tokens(tokenizer.encode("hello", add_special_tokens=False))
    assert unpack_tokens(tokenizer.encode("hello", add_special_tokens=True)) == [0, *plain]
    assert tokenizer.decode([0, *plain]) == "<|begin|>hello"
    assert tokenizer.encode("", add_special_tokens=False) == b""
    assert tokenizer.vocab_size == 4096


@pytest.mark.parametrize("choice", CHOICES)
def test_typed_special_tokens_become_special(choice: TokenizerChoice) -> None:
    tokenizer = load(BUNDLED, choice)
    assert unpack_tokens(tokenizer.encode("<|end_turn|><|begin|>", add_special_tokens=False)) == [
        3,
        0,
    ]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_lone_surrogate_is_a_value_error(choice: TokenizerChoice) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        load(BUNDLED, choice).encode("a\ud800", add_special_tokens=False)


@pytest.mark.parametrize("choice", CHOICES)
def test_configured_truncation_and_padding_are_off(choice: TokenizerChoice, tmp_path: Path) -> None:
    document = json.loads(BUNDLED.read_text())
    document["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    document["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 1, "pad_type_id": 0, "pad_token": "<|end|>",
    }  # fmt: skip
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    text = "one two three four five six seven"
    expected = load(BUNDLED, choice).encode(text, add_special_tokens=False)
    assert load(path, choice).encode(text, add_special_tokens=False) == expected


@pytest.mark.parametrize("path", [BUNDLED, RECORDED], ids=["bundled", "recorded"])
def test_the_fast_tokenizer_proves_equal(path: Path) -> None:
    tokenizer = load(path, TokenizerChoice.FAST)
    assert tokenizer.backend == "fastokens"
    rng = random.Random(1)
    reference = HfTokenizer(path)
    for _ in range(50):
        text = "".join(
            chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xD800)))) for _ in range(200)
        )
        for special in (False, True):
            assert tokenizer.encode(text, add_special_tokens=special) == reference.encode(
                text, add_special_tokens=special
            )


@given(st.text())
def test_fast_and_reference_agree_on_any_text(text: str) -> None:
    needs.module("fastokens", extra="fast")
    assert FAST.encode(text, add_special_tokens=True) == REFERENCE.encode(
        text, add_special_tokens=True
    )


@given(st.text())
def test_decoding_undoes_encoding(text: str) -> None:
    ids = unpack_tokens(REFERENCE.encode(text, add_special_tokens=False))
    assert REFERENCE.decode(ids) == text
    assert all(number < REFERENCE.vocab_size for number in ids)


REFERENCE = load_tokenizer(BUNDLED, TokenizerChoice.HF)
FAST = load_tokenizer(BUNDLED, TokenizerChoice.AUTO)


@pytest.mark.parametrize("choice", TokenizerChoice)
def test_the_choice_is_logged(choice: TokenizerChoice, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tokenizer = load(BUNDLED, choice)
    assert f": encoding with {tokenizer.backend}" in caplog.text
    assert str(BUNDLED.parent) not in caplog.text


@pytest.mark.parametrize("content", [None, "", "{}", '{"version": "1.0"}', "\x00"])
def test_what_is_no_tokenizer_is_refused_by_name(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PromptModelError, match=str(path)):
        load_tokenizer(path)


class Reversed:
    """A tokenizer that differs: it puts the ids of longer texts the wrong way round."""

    def no_truncation(self) -> None: ...

    def no_padding(self) -> None: ...

    def encode_batch_flat(self, inputs: list[str], add_special_tokens: bool) -> tuple[bytes, bytes]:
        tokens = REFERENCE.encode(inputs[0], add_special_tokens=add_special_tokens)
        ids = unpack_tokens(tokens)
        return pack_tokens(ids[::-1] if len(ids) > 20 else ids), b""


def test_the_self_check_finds_a_difference() -> None:
    reference = HfTokenizer(BUNDLED)
    difference = first_difference(FastTokenizer(Reversed(), reference), reference, [])
    assert difference is not None
    assert len(unpack_tokens(REFERENCE.encode(difference, add_special_tokens=True))) > 20
    assert first_difference(reference, reference, typed_tokens(reference)) is None


class Deaf:
    """A tokenizer that does not know one special token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        return REFERENCE.encode(
            text.replace(self._token, "?"), add_special_tokens=add_special_tokens
        )


@pytest.mark.parametrize("token", typed_tokens(HfTokenizer(BUNDLED)))
def test_the_self_check_types_every_added_token(token: str) -> None:
    added = typed_tokens(HfTokenizer(BUNDLED))
    assert first_difference(Deaf(token), REFERENCE, added) is not None


OTHER_LIBRARY = """
import struct
import tokenizers

class Tokenizer:
    def __init__(self, path):
        self._tokenizer = tokenizers.Tokenizer.from_file(path)

    from_file = classmethod(lambda cls, path: cls(path))

    def no_truncation(self): ...

    def no_padding(self): ...

    def encode_batch_flat(self, inputs, add_special_tokens):
        ids = self._tokenizer.encode(inputs[0], add_special_tokens=add_special_tokens).ids
        {fault}
        return struct.pack(f"<{{len(ids)}}I", *ids), b""
"""
LOADING = """
import logging, sys
from pathlib import Path
from prompt import PromptModelError, load_tokenizer, TokenizerChoice
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
for choice in (TokenizerChoice.AUTO, TokenizerChoice.FAST):
    try:
        print(choice, load_tokenizer(Path(sys.argv[1]), choice).backend)
    except PromptModelError as error:
        print(choice, error)
"""


@pytest.mark.parametrize(
    ("fault", "backend", "words"),
    [
        ("pass", "fastokens", "found equal"),
        (
            "ids = ids[:-1] if 'e\u0301' in inputs[0] else ids",
            "tokenizers",
            "differs from tokenizers",
        ),
        ("ids = ids[1:] if add_special_tokens else ids", "tokenizers", "differs from tokenizers"),
        ("raise RuntimeError('no such kind')", "tokenizers", "no such kind"),
        ("self.no_such_thing", "tokenizers", "no_such_thing"),
    ],
)
def test_a_fast_library_that_is_wrong_is_not_used(
    tmp_path: Path, fault: str, backend: str, words: str
) -> None:
    """In a process of its own, for the library is found by its name."""
    (tmp_path / "fastokens.py").write_text(OTHER_LIBRARY.format(fault=fault))
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", LOADING, str(BUNDLED)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert f"auto {backend}\n" in found
    assert words in found
    assert ("fast fastokens\n" in found) is (backend == "fastokens")
