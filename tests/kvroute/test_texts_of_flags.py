"""Texts that cannot be sent or written anywhere, and tokens that fit into no header, are refused with their flag."""

import pytest

from tests.kvroute.command import kvroute

BYTES = "\udcff"  # as Python takes the byte FF of a command line that is no UTF-8
UNSENDABLE = ["t\u00f6ken", "secret\n", "", BYTES, "a b"]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("explain", BYTES), "PROMPT"),
        (("explain", "x", "--model", BYTES), "--model"),
        (("serve", "--host", BYTES), "--host"),
        (("serve", "--tokenizer", f"m={BYTES}"), "--tokenizer"),
        (("doctor", "a:1", BYTES), "URL"),
        (("tap", "tcp://127.0.0.1:1", "--topic", BYTES), "--topic"),
        (("worker", "--lora-paths", f"{BYTES}=x"), "--lora-paths"),
    ],
)
async def test_what_is_no_text(words: tuple[str, ...], flag: str) -> None:
    ended = await kvroute(*words)
    assert (ended.code, ended.stderr) == (2, f"kvroute: {flag}: not UTF-8\n")


async def test_a_file_may_have_any_name() -> None:
    ended = await kvroute("explain", "--body", BYTES)
    assert (ended.code, ended.stderr) == (
        2,
        "kvroute: --body: \\udcff: no such file or directory\n",
    )


@pytest.mark.parametrize("token", UNSENDABLE)
@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("explain", "x"), "--token"),
        (("doctor", "http://127.0.0.1:1"), "--worker-token"),
        (("tap", "http://127.0.0.1:1"), "--worker-token"),
    ],
)
async def test_a_token_that_cannot_be_sent(words: tuple[str, ...], flag: str, token: str) -> None:
    ended = await kvroute(*words, flag, token)
    assert ended.code == 2
    assert ended.stderr.startswith(f"kvroute: {flag}: ")
    assert not token or token.strip() not in ended.stderr
