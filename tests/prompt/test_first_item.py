"""Chats with images: they have the tokens that come before the first one, whatever it is."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt import (
    Api,
    NoTokensError,
    NoTokensReason,
    PromptModel,
    TokenizerChoice,
    bundled_model_dir,
    load_tokenizer,
    view_request,
)
from prompt.prompt_tokens import PromptTokens
from prompt.template import ChatTemplate
from prompt.tokenizer import unpack_tokens
from protocol import EngineKind

STRING = "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|end_turn|>\n{% endfor %}"
IN_ORDER = (
    "{% for m in messages %}<|turn|>{{ m.role }}\n{% for p in m.content %}"
    "{% if p.type == 'text' %}{{ p.text }}{% else %}<|{{ p.type }}|>{% endif %}"
    "{% endfor %}<|end_turn|>\n{% endfor %}"
)
IMAGES_FIRST = IN_ORDER.replace(
    "{% for p in m.content %}",
    "{% for p in m.content %}{% if p.type == 'image' %}<|image|>{% endif %}{% endfor %}"
    "{% for p in m.content %}",
)
NUMBERED = IN_ORDER.replace("{% else %}", "{% else %}Picture {{ loop.index }}: ")
TEXT_ALONE = IN_ORDER.replace("{% else %}", "{% else %}{{ raise_exception('text alone') }}")
WITH_A_HINT = "{% if 'image' in messages | tojson %}Look!{% endif %}" + IN_ORDER

TOKENIZER = load_tokenizer(bundled_model_dir() / "tokenizer.json", TokenizerChoice.AUTO)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SYSTEM = {"role": "system", "content": "Be brief."}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def user(*parts: object) -> dict[str, object]:
    return {"role": "user", "content": list(parts)}


def model(source: str) -> PromptModel:
    return PromptModel("m", TOKENIZER, {"default": ChatTemplate(source, {})})


def tokens_of(one: PromptModel, *messages: object, **fields: Any) -> PromptTokens:
    body = json.dumps({"messages": messages, **fields}).encode()
    return one.prompt_tokens(view_request(Api.CHAT, body))


def words_of(one: PromptModel, *messages: object, **fields: Any) -> tuple[str, bool]:
    """The text that the tokens stand for, and whether they are all."""
    prompt = tokens_of(one, *messages, **fields)
    return one.decode(unpack_tokens(prompt.tokens)), not prompt.is_cut


@pytest.mark.parametrize(
    ("source", "messages", "expected"),
    [
        (STRING, [user(text("What is this?"), IMAGE)], "<|turn|>user\nWhat is this?"),
        (IN_ORDER, [user(text("What is this?"), IMAGE)], "<|turn|>user\nWhat is this?"),
        (IN_ORDER, [user(text("a"), text("b"), IMAGE, text("c"))], "<|turn|>user\nab"),
        (STRING, [user(text("a"), text("b"), IMAGE, text("c"))], "<|turn|>user\na\nb"),
        (STRING, [user(IMAGE, text("c"))], "<|turn|>user\n"),
        (IN_ORDER, [user(IMAGE, text("c"))], "<|turn|>user\n"),
        (IMAGES_FIRST, [user(text("What is this?"), IMAGE)], "<|turn|>user\n"),
        (NUMBERED, [user(text("What is this?"), IMAGE)], "<|turn|>user\nWhat is this?"),
        (
            IN_ORDER,
            [SYSTEM, user(text("a")), user(text("b"), IMAGE), user(IMAGE)],
            "<|turn|>system\nBe brief.<|end_turn|>\n<|turn|>user\na<|end_turn|>\n<|turn|>user\nb",
        ),
        (IN_ORDER, [user(text("a"), {"type": "input_audio"})], "<|turn|>user\na"),
        (IN_ORDER, [user(text("a"), {"type": "video_url"})], "<|turn|>user\na"),
        (IN_ORDER, [user(text("a"), {"type": "smell"})], "<|turn|>user\na"),
        (IN_ORDER, [user(text("a"), {"no": "type"})], "<|turn|>user\na"),
        (STRING, [user(text("a"), {"type": ["odd"]})], "<|turn|>user\na"),
        (IN_ORDER, [user(text("a"), {**text("b"), "uuid": "u"})], "<|turn|>user\na"),
        (STRING, [{"role": "tool", "content": [text("a"), IMAGE]}], "<|turn|>tool\na"),
        (STRING, [user(text("say \ue000 twice"), IMAGE)], "<|turn|>user\nsay "),
    ],
)
def test_tokens_end_where_the_first_item_begins(
    source: str, messages: list[object], expected: str
) -> None:
    assert words_of(model(source), *messages) == (expected, False)


@pytest.mark.parametrize(
    "fields", [{"continue_final_message": True}, {"add_generation_prompt": False}, {"seed": 1}]
)
def test_how_the_chat_ends_is_of_no_account(fields: dict[str, object]) -> None:
    assert words_of(model(IN_ORDER), user(text("a"), IMAGE), **fields)[0] == "<|turn|>user\na"


@pytest.mark.parametrize(
    ("source", "messages", "reason"),
    [
        (TEXT_ALONE, [user(text("a"), IMAGE)], NoTokensReason.TEMPLATE_FAILED),
        (WITH_A_HINT, [user(text("a"), IMAGE)], NoTokensReason.UNSUPPORTED_CONTENT),
        ("{{ messages[0].content }}", [user(IMAGE)], NoTokensReason.UNSUPPORTED_CONTENT),
        (STRING, [user(IMAGE), "odd"], NoTokensReason.NOT_A_PROMPT),
    ],
)
def test_chats_of_which_nothing_is_sure(
    source: str, messages: list[object], reason: NoTokensReason
) -> None:
    with pytest.raises(NoTokensError) as caught:
        tokens_of(model(source), *messages)
    assert caught.value.reason is reason


def test_other_items_have_the_same_tokens_before_them() -> None:
    one, other = (user(text("long text"), {**IMAGE, "image_url": {"url": u}}) for u in ("x", "y"))
    assert tokens_of(model(STRING), one).tokens == tokens_of(model(STRING), other).tokens


def test_a_text_is_the_same_as_a_string_and_as_a_part() -> None:
    for source in (STRING, IN_ORDER):
        alike = [{"role": "user", "content": "hi"}, user(text("hi"))]
        assert len({tokens_of(model(source), message).tokens for message in alike}) == 1
        assert not tokens_of(model(source), alike[0]).is_cut


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            [SYSTEM, user(text("a"), IMAGE)],
            "<|turn|>system\nBe brief.<|end_turn|>\n<|turn|>user\na",
        ),
        ([user(IMAGE, text("a"))], "<|turn|>user\n"),
        ([user(text("a"), text("b"), IMAGE)], None),  # joined in different ways
        ([user(text("a"), text("b")), user(IMAGE)], None),
        ([{"role": "tool", "content": [text("a"), IMAGE]}], None),
    ],
)
def test_where_engines_differ_before_the_item_nothing_is_sure(
    messages: list[object], expected: str | None
) -> None:
    both = model(STRING).for_engines({EngineKind.SGLANG})
    if expected is not None:
        assert words_of(both, *messages) == (expected, False)
        return
    with pytest.raises(NoTokensError) as caught:
        tokens_of(both, *messages)
    assert caught.value.reason is NoTokensReason.UNSUPPORTED_CONTENT


def test_the_body_stays_as_it_was() -> None:
    body: Mapping[str, object] = {"messages": [user(text("a"), IMAGE), user(IMAGE, text("b"))]}
    before = copy.deepcopy(body)
    view = view_request(Api.CHAT, json.dumps(body).encode())
    model(IN_ORDER).prompt_tokens(view)
    assert view.body == before


def test_who_needs_the_whole_prompt_gets_none() -> None:
    body = json.dumps({"messages": [user(text("a"), IMAGE)]}).encode()
    with pytest.raises(NoTokensError):
        model(STRING).whole_prompt(view_request(Api.CHAT, body))


@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=3),
    st.sampled_from([STRING, IN_ORDER]),
    st.text(max_size=20),
)
def test_they_are_the_first_tokens_of_the_prompt_whatever_the_item_becomes(
    texts: list[str], source: str, item: str
) -> None:
    """Placeholders are special tokens, as a rule: nothing joins them from the left."""
    one = model(source)
    parts = [text(words) for words in texts]
    cut = tokens_of(one, user(*parts, IMAGE)).tokens
    last = text(f"{texts[-1]}<|call|>{item}")
    whole = tokens_of(one, user(*parts[:-1], last)).tokens
    assert whole.startswith(cut)
