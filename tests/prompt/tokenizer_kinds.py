"""Small tokenizers of every kind that treats the edges of a text, or of an added token, in a way of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

TURN, END = "<|turn|>", "<|end|>"
TEMPLATE = f"{TURN}user{END}"

_CORPUS = [
    "the router sends each request to the worker that holds its prefix",
    "<|turn|>user says: don't say |end|> or <|turn, say turn and end",
    "caf\u00e9 cafe\u0301 \ufb01ve 123 1234 12345 日本語のテキスト  two  blanks\n\nand lines",
]


def _trained(
    normalizer: normalizers.Normalizer | None = None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="?", fuse_unk=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["?"], show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([TURN, END])
    return tokenizer


def _byte_level() -> Tokenizer:
    tokenizer = _trained(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _llama_2() -> Tokenizer:
    replace = normalizers.Replace(" ", "▁")
    return _trained(normalizers.Sequence([normalizers.Prepend("▁"), replace]))


def _metaspace(scheme: str) -> Tokenizer:
    return _trained(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False))


def _bert() -> Tokenizer:
    cleaned = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    return _trained(cleaned, pre_tokenizers.BertPreTokenizer())


def _stripped() -> Tokenizer:
    steps = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    return _trained(steps, pre_tokenizers.Whitespace())


def _with(*tokens: AddedToken) -> Callable[[], Tokenizer]:
    def build() -> Tokenizer:
        tokenizer = _metaspace("first")
        tokenizer.add_tokens(list(tokens))
        return tokenizer

    return build


KINDS: Mapping[str, Callable[[], Tokenizer]] = {
    "byte level, blank before each piece": _byte_level,
    "blank before each piece, by normalizing": _llama_2,
    "blank before the first piece": lambda: _metaspace("first"),
    "blank before every piece": lambda: _metaspace("always"),
    "lower case without accents": _bert,
    "composed and stripped": _stripped,
    "takes blanks on its left": _with(AddedToken("end", lstrip=True, normalized=False)),
    "takes blanks on its right": _with(AddedToken("end", rstrip=True, normalized=False)),
    "found after normalizing": _with(AddedToken("turn", normalized=True)),
    "ends in another's midst": _with(AddedToken("d<|t", normalized=False)),
    "begins in another's midst": _with(AddedToken("|>a", normalized=False)),
    "begins as another": _with(AddedToken("<|turn|>a", normalized=False)),
    "holds another": _with(AddedToken("a<|turn|>", normalized=False)),
    "a whole word": _with(AddedToken("end", single_word=True, normalized=False)),
}


def written(kind: str, directory: Path) -> Path:
    """Where the tokenizer of this kind lies, as engines keep theirs."""
    path = directory / f"{sorted(KINDS).index(kind)}.json"
    if not path.exists():
        KINDS[kind]().save(str(path))
    return path
