"""How help pages show switches: by their names alone, as they take no value."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption


class _Command(TyperCommand):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # its base is private
        """The parameters, with ``--help``."""
        parameters = super().get_params(ctx)
        _take_types_off(parameters)
        return parameters


class _Group(TyperGroup):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # its base is private
        """The parameters, with ``--help``."""
        parameters = super().get_params(ctx)
        _take_types_off(parameters)
        return parameters


def plain_switches(app: typer.Typer) -> None:
    """Let every page of the application, of its groups and its commands show switches so."""
    if app.registered_callback is not None:
        app.registered_callback.cls = _Group
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            plain_switches(group.typer_instance)


def _take_types_off(parameters: Iterable[object]) -> None:
    for one in parameters:
        if isinstance(one, TyperOption) and one.is_flag and one.metavar is None:
            one.metavar = ""
