"""Templates that take members in place render as others do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Undefined, UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prompt.member_code import MemberCode


class _InPlace(ImmutableSandboxedEnvironment):
    code_generator_class = MemberCode


class Thing:
    """Something that is no dictionary."""

    role = "thing"

    def __getitem__(self, name: str) -> str:
        raise KeyError(name)


class Odd(dict[str, object]):
    """A dictionary of another kind."""

    role = "odd"


OWNERS = [
    {},
    {"role": "user"},
    {"role": None},
    {"items": 1, "keys": 2},
    {"a b": 1, "'": 2},
    Thing(),
    Odd(role="odd item"),
    "text",
    3,
    None,
    [1],
    Undefined(name="m"),
]
SOURCES = [
    "{{ m.role }}",
    "{{ m['role'] }}",
    "{{ m.role.upper() }}",
    "{{ m.items }}",
    "{{ m['items'] }}",
    "{{ m.keys() | list }}",
    "{{ m[\"'\"] }}{{ m['a b'] }}",
    "{{ m[0] }}",
    "{{ m.role is defined }}",
    "{% for m in [m] %}{{ m.role }}{% endfor %}",
    "{{ x.role is defined }}",
    "{{ x.role }}",
    "{{ m.role.x.y }}",
    "{{ m.update({}) }}",
    "{{ m.__class__ }}",
]


def rendered(environment: ImmutableSandboxedEnvironment, source: str, owner: object) -> str:
    try:
        return environment.from_string(source).render(m=owner)
    except (UndefinedError, SecurityError, TypeError, AttributeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("source", SOURCES)
def test_the_text_is_the_same(source: str) -> None:
    for owner in OWNERS:
        expected = rendered(ImmutableSandboxedEnvironment(), source, owner)
        assert rendered(_InPlace(), source, owner) == expected, owner


@given(st.dictionaries(st.sampled_from(["role", "a", "pop", "é"]), st.integers() | st.none()))
def test_any_member_is_found(owner: dict[str, int | None]) -> None:
    source = "{{ m.role }}{{ m['a'] }}{{ m['pop'] is callable }}{{ m['é'] }}"
    expected = rendered(ImmutableSandboxedEnvironment(), source, owner)
    assert rendered(_InPlace(), source, owner) == expected
