import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prompt import (
    Api,
    NoTokensError,
    NoTokensReason,
    PromptModel,
    PromptModelError,
    TokenizerChoice,
    bundled_model_dir,
    load_tokenizer,
    view_request,
)
from prompt.template import ChatTemplate
from prompt.tokenizer import unpack_tokens
from protocol import EngineKind, pack_tokens

MODEL = PromptModel.load(bundled_model_dir())
HI = [{"role": "user", "content": "hi"}]
BOS = 0


def ids(api: Api, **body: Any) -> list[int]:
    tokens = MODEL.prompt_tokens(view_request(api, json.dumps(body).encode())).tokens
    return unpack_tokens(tokens)


def why_not(api: Api, model: PromptModel = MODEL, **body: Any) -> NoTokensReason:
    with pytest.raises(NoTokensError) as caught:
        model.prompt_tokens(view_request(api, json.dumps(body).encode()))
    return caught.value.reason


def plain(text: str) -> list[int]:
    return MODEL.encode(text, add_special_tokens=False)


def test_a_chat_has_the_tokens_of_its_rendered_text_and_one_start_token() -> None:
    text = "<|begin|><|turn|>user\nhi<|end_turn|>\n<|turn|>assistant\n"
    assert MODEL.render_chat({"messages": HI}) == text
    assert ids(Api.CHAT, messages=HI) == plain(text)
    assert ids(Api.CHAT, messages=HI).count(BOS) == 1


def test_a_completion_has_one_start_token_of_its_own() -> None:
    assert ids(Api.COMPLETIONS, prompt="hi") == [BOS, *plain("hi")]
    assert ids(Api.COMPLETIONS, prompt="<|begin|>hi") == [BOS, BOS, *plain("hi")]
    assert ids(Api.COMPLETIONS, prompt="hi", add_special_tokens=False) == plain("hi")


@pytest.mark.parametrize(
    ("api", "body", "expected"),
    [
        (Api.COMPLETIONS, {"prompt": [1234, 5]}, [1234, 5]),
        (Api.COMPLETIONS, {"prompt": [[1234, 5]]}, [1234, 5]),
        (Api.COMPLETIONS, {"prompt": ["hi"]}, [BOS, *plain("hi")]),
        (Api.COMPLETIONS, {"prompt": ""}, [BOS]),
        (Api.GENERATE, {"text": "hi"}, [BOS, *plain("hi")]),
        (Api.GENERATE, {"text": None, "input_ids": [7, 8]}, [7, 8]),
        (Api.GENERATE, {"input_ids": [[7, 8]]}, [7, 8]),
        (
            Api.COMPLETIONS,
            {"prompt": "hi", "n": 3, "best_of": 4, "echo": True, "suffix": None},
            [BOS, *plain("hi")],
        ),
        (Api.CHAT, {"messages": [], "kv_transfer_params": {"prompt_token_ids": [7, 8]}}, [7, 8]),
    ],
)
def test_prompts_of_all_forms(api: Api, body: dict[str, Any], expected: list[int]) -> None:
    assert ids(api, **body) == expected


def test_top_level_ids_of_a_chat_are_ignored_as_engines_do() -> None:
    ignored: list[dict[str, Any]] = [
        {"prompt_token_ids": [7]},
        {"kv_transfer_params": {"prompt_token_ids": []}},
    ]
    for fields in ignored:
        assert ids(Api.CHAT, messages=HI, **fields) == ids(Api.CHAT, messages=HI)


def test_ids_of_a_chat_are_ignored_where_engines_render_it_all_the_same() -> None:
    fields: dict[str, Any] = {"kv_transfer_params": {"prompt_token_ids": [7]}}
    assert ids(Api.CHAT, messages=HI, echo=True, **fields) == ids(Api.CHAT, messages=HI)
    image = [{"type": "text", "text": "look at this " * 9}, {"type": "image_url", "image_url": {}}]
    view = view_request(
        Api.CHAT,
        json.dumps({"messages": [{"role": "user", "content": image}], **fields}).encode(),
    )
    assert MODEL.prompt_tokens(view).is_cut


def test_add_special_tokens_is_honoured_in_chats() -> None:
    assert ids(Api.CHAT, messages=HI, add_special_tokens=True) == [BOS, *ids(Api.CHAT, messages=HI)]


@pytest.mark.parametrize(
    ("api", "body", "reason"),
    [
        (Api.COMPLETIONS, {"prompt": ["a", "b"]}, NoTokensReason.BATCHED_PROMPT),
        (Api.COMPLETIONS, {"prompt": [[1], [2]]}, NoTokensReason.BATCHED_PROMPT),
        (Api.GENERATE, {"text": ["a", "b"]}, NoTokensReason.BATCHED_PROMPT),
        (Api.GENERATE, {"input_ids": [[1], [2]]}, NoTokensReason.BATCHED_PROMPT),
        (Api.COMPLETIONS, {}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": []}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [[]]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": 5}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": {"a": 1}}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [1, "a"]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [1.5]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [-1]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": [1 << 32]}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": "\ud800"}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": "a", "prompt_embeds": "x"}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.COMPLETIONS, {"prompt": "a", "truncate_prompt_tokens": 5}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.GENERATE, {"text": "a", "image_data": ["x"]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.GENERATE, {"input_embeds": [[0.1]]}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "prompt_embeds": "x"}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.CHAT, {"messages": []}, NoTokensReason.NOT_A_PROMPT),
        (Api.CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, NoTokensReason.NOT_A_PROMPT),
        (Api.CHAT, {"messages": HI, "chat_template": "x"}, NoTokensReason.OWN_TEMPLATE),
        (Api.CHAT, {"messages": HI, "kv_transfer_params": {"prompt_token_ids": ["a"]}}, NoTokensReason.NOT_A_PROMPT),
        (Api.COMPLETIONS, {"prompt": "a", "suffix": "b"}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.COMPLETIONS, {"prompt": "a", "suffix": ""}, NoTokensReason.UNSUPPORTED_CONTENT),
        (Api.OTHER, {"prompt": "hi"}, NoTokensReason.UNSUPPORTED_API),
    ],
)  # fmt: skip
def test_why_a_request_has_no_tokens(
    api: Api, body: dict[str, Any], reason: NoTokensReason
) -> None:
    assert why_not(api, **body) is reason


def test_ids_are_told_apart_by_value_not_by_their_digits() -> None:
    assert ids(Api.COMPLETIONS, prompt=[1234, 5]) != ids(Api.COMPLETIONS, prompt=[123, 45])
    assert pack_tokens([12345])[:4] != pack_tokens([1234])


def test_stages_are_timed_by_the_clock_that_was_given() -> None:
    ticks = itertools.count(0, 5_000)
    tokenizer = load_tokenizer(bundled_model_dir() / "tokenizer.json", TokenizerChoice.HF)
    templates = {"default": ChatTemplate("{{ messages[0].content }}", {})}
    model = PromptModel("m", tokenizer, templates, clock_ns=lambda: next(ticks))
    chat = model.prompt_tokens(view_request(Api.CHAT, json.dumps({"messages": HI}).encode()))
    assert (chat.render_us, chat.tokenize_us) == (5, 5)
    text = model.prompt_tokens(view_request(Api.COMPLETIONS, b'{"prompt": "hi"}'))
    assert (text.render_us, text.tokenize_us) == (0, 5)
    given = model.prompt_tokens(view_request(Api.COMPLETIONS, b'{"prompt": [1]}'))
    assert (given.render_us, given.tokenize_us) == (0, 0)


def directory_with(tmp_path: Path, config: dict[str, Any]) -> Path:
    shutil.copy(bundled_model_dir() / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_model_without_a_template_takes_completions_only(tmp_path: Path) -> None:
    model = PromptModel.load(directory_with(tmp_path, {}), name="bare")
    assert model.name == "bare"
    assert why_not(Api.CHAT, model, messages=HI) is NoTokensReason.NO_TEMPLATE
    assert model.prompt_tokens(view_request(Api.COMPLETIONS, b'{"prompt": [1]}')).tokens


def test_requests_with_tools_get_the_tool_template(tmp_path: Path) -> None:
    templates = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools"},
    ]
    model = PromptModel.load(directory_with(tmp_path, {"chat_template": templates}))
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert model.render_chat({"messages": HI}) == "plain"
    assert model.render_chat({"messages": HI, "tools": tools}) == "tools"


def test_a_broken_template_is_named(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, {"chat_template": "a\n{% if %}"})
    with pytest.raises(PromptModelError, match="chat template 'default', line 2"):
        PromptModel.load(directory)


def test_the_model_is_named_after_its_directory() -> None:
    assert (MODEL.name, MODEL.vocab_size) == ("kvroute-sim", 4096)
    assert MODEL.backend in {"fastokens", "tokenizers"}


def test_what_engines_render_differently_has_no_tokens_where_both_serve_the_model() -> None:
    part = {"type": "text", "text": "hi"}
    one, two = ([{"role": "user", "content": [part] * count}] for count in (1, 2))
    both = MODEL.for_engines({EngineKind.SGLANG, EngineKind.VLLM})
    assert why_not(Api.CHAT, both, messages=two) is NoTokensReason.UNSUPPORTED_CONTENT
    last = [*HI, {"role": "assistant", "content": "so"}]  # which SGLang takes for a user's
    assert why_not(Api.CHAT, both, messages=last) is NoTokensReason.UNSUPPORTED_CONTENT
    assert why_not(Api.CHAT, both, messages=HI, input_ids=[1]) is NoTokensReason.UNSUPPORTED_CONTENT
    for api, body in (
        (Api.CHAT, {"messages": HI}),
        (Api.CHAT, {"messages": one}),
        (Api.CHAT, {"messages": [*HI, {"role": "assistant", "content": "so"}, *HI]}),
        (Api.COMPLETIONS, {"prompt": "hi"}),
    ):
        view = view_request(api, json.dumps(body).encode())
        assert both.prompt_tokens(view).tokens == MODEL.prompt_tokens(view).tokens
    assert MODEL.for_engines({EngineKind.VLLM, EngineKind.UNKNOWN}) is MODEL
    assert ids(Api.CHAT, messages=one) == ids(Api.CHAT, messages=HI)


def test_strings_for_a_template_of_parts_are_not_known_where_sglang_serves_it(
    tmp_path: Path,
) -> None:
    loop = "{% for message in messages %}{% for p in message.content %}{{ p.text }}{% endfor %}{% endfor %}"
    model = PromptModel.load(directory_with(tmp_path, {"chat_template": loop}))
    sglang = model.for_engines({EngineKind.SGLANG})
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    for one, messages in ((model, HI), (model, parts), (sglang, parts)):
        view = view_request(Api.CHAT, json.dumps({"messages": messages}).encode())
        assert unpack_tokens(one.prompt_tokens(view).tokens) == plain("hi")
    assert why_not(Api.CHAT, sglang, messages=HI) is NoTokensReason.UNSUPPORTED_CONTENT
