import pytest
from jinja2 import Environment

from prompt.content_format import ContentFormat, content_format, sglang_content_format

STRING, PARTS = ContentFormat.STRING, ContentFormat.PARTS


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("", STRING),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", STRING),
        ("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}", PARTS),
        ("{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}", PARTS),
        ("{% for m in messages[1:] %}{% for p in m.content | list %}{% endfor %}{% endfor %}", PARTS),
        ("{% set x = messages %}{% set y = x[1:] %}{% for m in y %}{% for p in m.content[:2] %}{% endfor %}{% endfor %}", PARTS),
        ("{% set x = x %}{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}", STRING),
        ("{% for m in others %}{% for p in m.content %}{% endfor %}{% endfor %}", STRING),
        ("{% macro show(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}", STRING),
        ("{% for m in messages %}{% set c = m.content %}{% for p in c %}{% endfor %}{% endfor %}", STRING),
        ("{% for k, v in messages %}{% for p in v.content %}{% endfor %}{% endfor %}", STRING),
        ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% endfor %}{% endif %}{% endfor %}", PARTS),
    ],
)  # fmt: skip
def test_form_is_told_from_the_loops(source: str, wanted: ContentFormat) -> None:
    assert content_format(Environment(autoescape=True).parse(source)) is wanted


LOOP = (
    "{%% for %s in messages %%}{%% for p in %s.content %%}{{ p.text }}{%% endfor %%}{%% endfor %%}"
)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("", STRING),
        (LOOP % ("message", "message"), PARTS),
        (LOOP % ("msg", "msg"), PARTS),
        (LOOP % ("m", "m"), PARTS),
        (LOOP % ("one", "one"), STRING),
        ("{% for message in others %}{% for p in message['content'][1:] %}{% endfor %}{% endfor %}", PARTS),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", STRING),
        ("{# reads no image #}{% for message in messages %}{{ message.content }}{% endfor %}", PARTS),
        ("{{ 'supervision' }}", PARTS),
    ],
)  # fmt: skip
def test_the_form_that_sglang_finds(source: str, wanted: ContentFormat) -> None:
    assert sglang_content_format(source, Environment(autoescape=True).parse(source)) is wanted
