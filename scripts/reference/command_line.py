"""Reference of the command line, read from the signatures of its commands."""

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from kvroute.command_line import build_app
from scripts.reference.markdown import code, page, prose, table

_INTRO = "With `--json -` stdout holds the JSON and nothing else; tables then go to stderr, where progress always goes."
_EXIT_CODES = (
    ("0", "All went well. `serve` and `worker`: stopped in order, by Ctrl-C or SIGTERM."),
    (
        "1",
        "It did not go well: what was found is bad, somebody cannot be reached, a port is taken.",
    ),
    (
        "2",
        "Wrong flags or configuration: the flag or field is named, and nothing was done.",
    ),
    ("130", "Interrupted by Ctrl-C; `serve` and `worker`: before they served."),
    ("143", "Ended by SIGTERM; `serve` and `worker`: before they served."),
)
_DEFAULT = re.compile(r" \[default: (.+)\]$")
_VALUES = {str: "TEXT", int: "INTEGER", float: "NUMBER", Path: "PATH"}


def command_line() -> str:
    """The page."""
    parts = [_INTRO, "## Exit codes", table(("code", "meaning"), _EXIT_CODES)]
    for name, callback in _commands(build_app(), "kvroute"):
        parts += [f"## {name}", *_description(callback), *_parameters(callback)]
    return page("Command line", *parts)


def fields_with_flag(callback: Callable[..., Any]) -> list[str]:
    """Names of the parameters that are flags."""
    return [name for name, info, _, _ in _options(callback) if isinstance(info, OptionInfo)]


def flags() -> dict[str, set[str]]:
    """Command → its flags as they are typed."""
    return {
        command: {
            _spelling(name, info)
            for name, info, _, _ in _options(callback)
            if isinstance(info, OptionInfo)
        }
        for command, callback in _commands(build_app(), "kvroute")
    }


def _commands(app: typer.Typer, prefix: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"{prefix} {command.name or command.callback.__name__}", command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(group.typer_instance, f"{prefix} {group.name}")


def _description(callback: Callable[..., Any]) -> list[str]:
    return [prose(part) for part in (inspect.getdoc(callback) or "").split("\n\n")]


def _parameters(callback: Callable[..., Any]) -> list[str]:
    rows = [
        (
            code(_spelling(name, info)) + _value(info, kind),
            _meaning(info),
            _said(info) or _given(default),
        )
        for name, info, kind, default in _options(callback)
    ]
    return [table(("parameter", "meaning", "default"), rows)] if rows else []


def _options(
    callback: Callable[..., Any],
) -> Iterator[tuple[str, OptionInfo | ArgumentInfo, Any, object]]:
    """Name, description, type and default of each parameter that the command line gives."""
    hints = get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, *described = get_args(hints[name]) or (hints[name],)
        for info in described:
            if isinstance(info, OptionInfo | ArgumentInfo):
                yield name, info, kind, parameter.default


def _spelling(name: str, info: OptionInfo | ArgumentInfo) -> str:
    if isinstance(info, ArgumentInfo):
        return name.upper()
    # In Annotated, typer holds the first declaration as a default until the command is built.
    declared = (info.default, *(info.param_decls or ()))
    spelled = (one for one in declared if isinstance(one, str) and one.startswith("-"))
    return next(spelled, f"--{name.replace('_', '-')}")


def _meaning(info: OptionInfo | ArgumentInfo) -> str:
    variable = f" Also `{info.envvar}`." if info.envvar else ""
    return prose(_DEFAULT.sub("", info.help or "")) + variable


def _said(info: OptionInfo | ArgumentInfo) -> str:
    """The default that the help tells in words, for it is none of the signature."""
    said = _DEFAULT.search(info.help or "")
    return prose(said[1]) if said else ""


def _value(info: OptionInfo | ArgumentInfo, kind: Any) -> str:
    """What follows the flag."""
    if isinstance(info, ArgumentInfo) or kind is bool:
        return ""
    if info.metavar:
        return f" {code(info.metavar)}"
    if get_args(kind):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " " + " ".join(code(str(one.value)) for one in kind)
    return f" {code(_VALUES[kind])}"


def _given(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    if default is None or default is False:
        return ""
    return code(str(default.value if isinstance(default, Enum) else default))
