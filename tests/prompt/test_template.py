from datetime import datetime
from typing import Any

import pytest
from jinja2.exceptions import TemplateSyntaxError

from prompt.errors import NoTokensError, NoTokensReason
from prompt.template import ChatTemplate, RenderLimits

HI = {"role": "user", "content": "hi"}
CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def render(
    source: str, *messages: dict[str, Any], special: dict[str, object] | None = None, **fields: Any
) -> str:
    return ChatTemplate(source, special or {}).render(
        {"messages": list(messages) or [HI], **fields}
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ unk_token }}", "<s>hi"),
        ("  {% if true %}\na\n  {% endif %}\nb", "a\nb"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "02"),
        ("{% generation %}{{ messages[0]['content'] }}{% endgeneration %}!", "hi!"),
        ("{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}", "2"),
        ("{{ {'b': 'é<&>\\'', 'a': [1.0, 1e30, none, true]} | tojson }}", '{"b": "é<&>\'", "a": [1.0, 1e+30, null, true]}'),
        ("{{ {'b': 1, 'a': 'é'} | tojson(ensure_ascii=true, indent=1, sort_keys=true) }}", '{\n "a": "\\u00e9",\n "b": 1\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "09 Mar 2026"),
        ("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}", "True True True"),
        ("{{ x is defined }} {{ messages[0].nothing is defined }}", "False False"),
        ("{{ messages[0].get('content') }} {{ messages[0].keys() | list | length }}", "hi 2"),
        ("{{ messages[0].items is string }} {{ messages[0]['items'] is defined }}", "False True"),
    ],
)  # fmt: skip
def test_templates_run_as_engines_run_them(source: str, expected: str) -> None:
    template = ChatTemplate(
        source, {"bos_token": "<s>"}, clock=lambda: datetime(2026, 3, 9)  # noqa: DTZ001 - local time
    )  # fmt: skip
    assert template.render({"messages": [HI]}) == expected


def test_kwargs_reach_the_template_and_cannot_replace_the_chat() -> None:
    source = "{{ thinking }}{{ bos_token }}{{ messages[0].content }}{{ tools }}{{ add_generation_prompt }}"
    kwargs = {
        "thinking": 1,
        "bos_token": "<b>",
        "messages": [],
        "tools": [],
        "add_generation_prompt": False,
    }
    assert (
        render(source, special={"bos_token": "<s>"}, chat_template_kwargs=kwargs)
        == "1<b>hiNoneTrue"
    )


def test_content_comes_in_the_form_that_the_template_loops_over() -> None:
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    parts = [{"type": "text", "text": "hi"}]
    assert render(source) == render(source, {"role": "user", "content": parts}) == "[hi]"
    assert render(CHATML) == render(CHATML, {"role": "user", "content": parts})


def test_developer_is_kept_where_the_template_mentions_it() -> None:
    developer = {"role": "developer", "content": "d"}
    assert render(CHATML, HI, developer) == "<|system|>d<|end|><|user|>hi<|end|><|assistant|>"
    assert "<|system|>d" in render(CHATML + "{# developer #}", HI, developer)
    for mention in ("'developer'", '"developer"'):
        assert "<|developer|>d" in render(f"{CHATML}{{# {mention} #}}", HI, developer)


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        (CHATML, "Sure, ", "<|user|>hi<|end|><|assistant|>Sure, "),
        (CHATML, "", "<|user|>hi<|end|><|assistant|>"),
        (CHATML, "hi", "<|user|>hi<|end|><|assistant|>hi"),
        (CHATML.replace("m.content", "m.content | trim"), "Sure, ", "<|user|>hi<|end|><|assistant|>Sure,"),
        (CHATML, [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}], "<|user|>hi<|end|><|assistant|>a\nb "),
        (
            "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "[hi][a][b",
        ),
    ],
)  # fmt: skip
def test_the_last_message_can_be_gone_on_with(source: str, content: object, expected: str) -> None:
    last = {"role": "assistant", "content": content}
    assert render(source, HI, last, continue_final_message=True) == expected


@pytest.mark.parametrize(
    ("source", "content", "reason"),
    [
        ("{{ messages[0].content }}", "a", NoTokensReason.TEMPLATE_FAILED),
        ("{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", None, NoTokensReason.NOT_A_PROMPT),
    ],
)  # fmt: skip
def test_a_last_message_that_cannot_be_gone_on_with(
    source: str, content: object, reason: NoTokensReason
) -> None:
    with pytest.raises(NoTokensError) as caught:
        render(source, HI, {"role": "assistant", "content": content}, continue_final_message=True)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content.nothing.at_all }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ 'a' * -1 + none }}",
        "{{ undefined_thing | tojson }}",
        "{{ messages[0].content | int // 0 }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% include 'other' %}",
    ],
)
def test_a_template_that_breaks_leaves_the_chat_without_tokens(source: str) -> None:
    with pytest.raises(NoTokensError) as caught:
        render(source)
    assert caught.value.reason is NoTokensReason.TEMPLATE_FAILED


def test_the_fault_is_told_but_no_text_of_the_chat() -> None:
    with pytest.raises(NoTokensError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(NoTokensError) as caught:
        render("{{ messages[0].content + 1 }}", {"role": "user", "content": "secret"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (CHATML, [HI] * 5),
        (CHATML, [{"role": "user", "content": "x" * 101}]),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{{ messages[0].content }}{% endfor %}{% endfor %}", [HI]),
    ],
)  # fmt: skip
def test_size_is_limited_before_and_during_rendering(
    source: str, messages: list[dict[str, Any]]
) -> None:
    limits = RenderLimits(messages=4, message_chars=100, prompt_chars=1_000)
    with pytest.raises(NoTokensError) as caught:
        ChatTemplate(source, {}, limits=limits).render({"messages": messages})
    assert caught.value.reason is NoTokensReason.TOO_LONG


def test_a_source_that_is_no_template_is_refused() -> None:
    with pytest.raises(TemplateSyntaxError):
        ChatTemplate("{% for m in %}", {})


PLAIN = "{% for message in messages %}{{ message.role + message.content }}{% endfor %}"
LOOPS = "{% for message in messages %}{% for p in message.content %}{{ p.text }}{% endfor %}{% endfor %}"
EITHER = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for p in message.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
)
TRIMS = EITHER.replace("{{ message.content }}", "{{ message.content | trim }}")
UNHEARD = LOOPS.replace("message", "one").replace("ones", "messages")
STRINGS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]
LISTS = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


@pytest.mark.parametrize(
    ("source", "strings", "lists"),
    [
        (PLAIN, True, True),
        (EITHER, True, True),
        (LOOPS, False, True),  # SGLang hands it strings as they are
        (TRIMS, False, True),
        (f"{PLAIN}{{# image #}}", True, False),  # and lists to what mentions images
        (UNHEARD, False, False),  # it sees no loop where the name is one of its own
        (f"{EITHER}{{# video #}}", True, True),
        ("{{ raise_exception('never') }}{# audio #}", True, False),
    ],
)
def test_whether_engines_hand_over_the_same(source: str, *, strings: bool, lists: bool) -> None:
    template = ChatTemplate(source, {})
    assert template.is_alike(STRINGS) is strings
    assert template.is_alike(LISTS) is lists
    assert template.is_alike([*STRINGS, *LISTS]) is (strings and lists)
