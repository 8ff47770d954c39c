"""How the pages of help look, and what is said where a command line cannot be read.

Switches are shown by their names alone, as they take no value; what is chosen from a few words says them in its
help, where they are not broken in their middle.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.models import OptionInfo

from kvroute.usage_faults import UsageFault, is_call_for_help, usage_words


class _Command(TyperCommand):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # its base is private
        """The parameters, with ``--help``."""
        parameters = super().get_params(ctx)
        _take_types_off(parameters)
        return parameters

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # its base is private
        """Run it, with texts that are UTF-8: others can be sent nowhere. Names of files may be of any bytes."""
        hints = {} if self.callback is None else get_type_hints(inspect.unwrap(self.callback))
        for parameter in self.params:
            name = str(parameter.name)
            given = ctx.params.get(name)
            texts = given if isinstance(given, list | tuple) else (given,)
            if Path not in _parts(hints.get(name)) and not all(map(_is_utf8, texts)):
                fault: Any = typer.BadParameter  # its base is private, as is a parameter's
                raise fault("not UTF-8", ctx=ctx, param=parameter)
        return super().invoke(ctx)


class _Group(TyperGroup):
    def main(  # as its base
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and end the process; a wrong command line in one line."""
        try:
            ended_with = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except UsageFault as error:
            if not standalone_mode:
                raise
            if is_call_for_help(error):
                error.show()
            else:
                typer.echo(f"kvroute: {usage_words(error)}", err=True)
            ended_with = 2
        except typer.Abort:
            ended_with = 1
        if not standalone_mode:
            return ended_with
        sys.exit(ended_with or 0)

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # its base is private
        """The parameters, with ``--help``."""
        parameters = super().get_params(ctx)
        _take_types_off(parameters)
        return parameters


def plain_switches(app: typer.Typer) -> None:
    """Let every page of the application, of its groups and its commands show switches and choices so."""
    if app.registered_callback is not None:
        app.registered_callback.cls = _Group
    for command in app.registered_commands:
        command.cls = _Command
        if command.callback is not None:
            _say_choices(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            plain_switches(group.typer_instance)


def _is_utf8(value: object) -> bool:
    return not (isinstance(value, str) and re.search("[\ud800-\udfff]", value))


def _take_types_off(parameters: Iterable[object]) -> None:
    for one in parameters:
        if isinstance(one, TyperOption) and one.is_flag and one.metavar is None:
            one.metavar = ""


def _say_choices(callback: Callable[..., object]) -> None:
    """Say the words of each choice in its help, once."""
    for hint in get_type_hints(callback, include_extras=True).values():
        kind, *described = get_args(hint) or (hint,)
        kinds = [one for one in _parts(kind) if isinstance(one, type) and issubclass(one, Enum)]
        for info in described:
            if kinds and isinstance(info, OptionInfo) and info.metavar is None:
                info.metavar = "WORD"
                says, bracket, default = (info.help or "").partition(" [default: ")
                words = ", ".join(str(one.value) for one in kinds[0])
                info.help = f"{says.rstrip('.')}: {words}.{bracket}{default}"


def _parts(hint: Any) -> Iterator[Any]:
    """A type and those that it is made of, as of a list or where it may be left out."""
    yield hint
    for one in get_args(hint):
        yield from _parts(one)
