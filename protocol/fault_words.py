"""What is wrong with a value in our own words, whatever the library that validates it says.

    at most 65535 (given: 70000)

The value is shown where it is short and can hold no secret.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

_MAX_SHOWN = 80
_SECRET = ("token", "keys", "sha256", "salt", "bootstrap")  # ends of the names of fields
_CREDENTIALS = ("@", "token", "key=", "secret", "password")
_WORDS = {
    "missing": "required",
    "extra_forbidden": "unknown field",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_pattern_mismatch": "of the form {pattern}",
    "string_too_short": "{min_length} characters or more",
    "string_too_long": "{max_length} characters or fewer",
    "too_short": "{min_length} or more",
    "too_long": "{max_length} or fewer",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "path_type": "a path",
    "is_instance_of": "a {class}",
}
_KINDS = (
    ("int_", "a whole number"),
    ("float_", "a number"),
    ("bool_", "true or false"),
    ("model_", "an object of fields"),
    ("dict_", "an object of fields"),
    ("mapping_", "an object of fields"),
    ("list_", "a list"),
    ("tuple_", "a list"),
    ("set_", "a list"),
    ("frozen_set_", "a list"),
    ("json_", "no valid JSON"),
)


def fault_words(error: Mapping[str, Any]) -> str:
    """From one of a ``ValidationError``'s errors, without its path."""
    text = _text(error)
    given = "" if error["type"] == "missing" else _shown(error)
    is_said = not given or str(error.get("input")) in text
    return text if is_said else f"{text} (given: {given})"


def first_fault(error: ValidationError, whole: str = "") -> str:
    """The path of the first fault and its words, without what was given.

    Args:
        whole: what stands in the path's place where the value is wrong as a whole.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"])) or whole
    return f"{path}: {fault_words(first)}" if path else fault_words(first)


def _text(error: Mapping[str, Any]) -> str:
    kind = str(error["type"])
    if kind in _WORDS:
        limits = {name: _number(value) for name, value in error.get("ctx", {}).items()}
        return _WORDS[kind].format_map(limits)
    for prefix, words in _KINDS:
        if kind.startswith(prefix):
            return words
    return str(error["msg"]).removeprefix("Value error, ")


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(error: Mapping[str, Any]) -> str:
    """The value as it was given; empty where it is no scalar, or may be a secret."""
    return "" if is_secret(error["loc"]) else shown(error.get("input"))


def is_secret(path: Iterable[object]) -> bool:
    """May what stands at the path of a field, or within it, be a secret?"""
    return any(str(name).endswith(_SECRET) for name in path)


def shown(value: object) -> str:
    """A value on one line, cut where it is long; empty where it is no scalar or may hold credentials."""
    if not isinstance(value, str | int | float):
        return ""
    if isinstance(value, str) and any(mark in value.lower() for mark in _CREDENTIALS):
        return ""
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
