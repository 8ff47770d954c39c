"""A command line that cannot be read, in one line as every other refusal: flag, what it wants, what was given."""

from typing import Any

import typer
from pydantic import ValidationError

from protocol.fault_words import fault_words

UsageFault: Any = typer.BadParameter.__mro__[1]
"""What is raised for one. It has no public name of its own."""


def usage_words(error: Exception) -> str:
    """The line."""
    flag = _flag(error)
    cause = error.__cause__
    if flag and isinstance(cause, ValidationError):
        return f"{flag}: {fault_words(cause.errors()[0])}"
    message = " ".join(str(getattr(error, "message", error)).split())
    if flag and message:
        return f"{flag}: {message}"
    formatted = getattr(error, "format_message", None)
    return " ".join(str(message if formatted is None else formatted()).split())


def flag_complaints(error: ValidationError) -> str:
    """Every fault of fields that flags of their names fill."""
    return "; ".join(_complaint(one["loc"], fault_words(one)) for one in error.errors())


def is_call_for_help(error: Exception) -> bool:
    """Was nothing given, where help is the answer?"""
    return type(error).__name__ == "NoArgsIsHelpError"


def _flag(error: Exception) -> str:
    """The parameter as it is typed; empty where it is not about one."""
    parameter = getattr(error, "param", None)
    if parameter is None:
        return ""
    names = [name for name in getattr(parameter, "opts", ()) if name.startswith("--")]
    return names[0] if names else str(parameter.name).upper()


def _complaint(where: tuple[int | str, ...], what: str) -> str:
    if not where:  # of several fields; the one to change comes first
        field, colon, what = what.partition(": ")
        where = (field,) if colon else ()
    return "--" + ".".join(map(str, where)).replace("_", "-") + f": {what}"
