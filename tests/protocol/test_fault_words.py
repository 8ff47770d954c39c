"""Faults of values in our own words, with the value where it may be shown."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.fault_words import fault_words, first_fault, shown


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    x: int = 1


class _Fields(BaseModel):
    whole: Annotated[int, Field(ge=1, le=9)] = 1
    real: Annotated[float, Field(gt=0, lt=2, allow_inf_nan=False)] = 1.0
    flag: bool = True
    word: Literal["a", "b"] = "a"
    name: Annotated[str, Field(pattern="^x+$", max_length=3)] = "x"
    inner: _Inner = _Inner()
    items: tuple[int, ...] = ()
    table: dict[str, int] = Field(default_factory=dict)
    my_token: int = 1


CASES: list[tuple[dict[str, object], str]] = [
    ({"whole": 0}, "at least 1 (given: 0)"),
    ({"whole": 10}, "at most 9 (given: 10)"),
    ({"whole": "x"}, "a whole number (given: 'x')"),
    ({"whole": 1.5}, "a whole number (given: 1.5)"),
    ({"whole": None}, "a whole number"),
    ({"real": 0.0}, "above 0 (given: 0.0)"),
    ({"real": 2.5}, "below 2 (given: 2.5)"),
    ({"real": "x"}, "a number (given: 'x')"),
    ({"real": float("inf")}, "a finite number (given: inf)"),
    ({"flag": "perhaps"}, "true or false (given: 'perhaps')"),
    ({"word": "c"}, "'a' or 'b' (given: 'c')"),
    ({"name": 5}, "a text (given: 5)"),
    ({"name": "y"}, "of the form ^x+$ (given: 'y')"),
    ({"name": "xxxx"}, "3 characters or fewer (given: 'xxxx')"),
    ({"inner": 5}, "an object of fields (given: 5)"),
    ({"inner": {"y": 5}}, "unknown field (given: 5)"),
    ({"items": 5}, "a list (given: 5)"),
    ({"table": [1]}, "an object of fields"),
    ({"my_token": "secret"}, "a whole number"),
]


@pytest.mark.parametrize(("given", "words"), CASES)
def test_words(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as raised:
        _Fields.model_validate(given)
    assert fault_words(raised.value.errors()[0]) == words


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("keys", 0), "kvr-1"),
        (("keys", 0, "name"), "kvr-1 "),
        (("keys", 3, "models"), "kvr-1"),
        (("bootstrap",), "kvr-1"),
        (("control_token",), "kvr-1"),
        (("workers", 0, "url"), "http://h/?api_key=kvr-1"),
        (("workers", 0, "url"), "http://u:kvr-1@h"),
    ],
)
def test_what_may_be_a_secret_is_not_shown(path: tuple[object, ...], value: str) -> None:
    error = {"type": "list_type", "loc": path, "input": value, "msg": "Input should be a list"}
    assert fault_words(error) == "a list"


def test_what_is_shown_is_short_printable_and_no_secret() -> None:
    assert shown("a\x1b[1m\n" + "b" * 200) == r"'a\x1b[1m\n" + "b" * 69 + "…"
    assert shown("http://user:key@host") == ""
    assert shown("{token: abc") == ""
    assert shown([1]) == ""


def test_the_first_fault_is_told_with_its_path_and_without_what_was_given() -> None:
    with pytest.raises(ValidationError) as raised:
        _Fields.model_validate({"inner": {"x": "secret"}, "whole": "x"})
    assert first_fault(raised.value) == "whole: a whole number"
    with pytest.raises(ValidationError) as raised:
        _Fields.model_validate({"inner": {"x": "secret"}})
    assert first_fault(raised.value) == "inner.x: a whole number"
    with pytest.raises(ValidationError) as raised:
        _Fields.model_validate_json("[]")
    assert first_fault(raised.value) == "an object of fields"
    assert first_fault(raised.value, "body") == "body: an object of fields"
