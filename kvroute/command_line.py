"""The one command line: all of the commands, or the one that is named.

Only the module of the command that is named is imported, so that a worker does not wait for the router's
imports, nor the router for the load generator's; help and mistakes import them all.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from kvroute.help_page import plain_switches

COMMANDS = ("serve", "worker", "demo", "scenario", "replay", "explain", "doctor", "tap")


def build_app(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with the named commands in it."""
    app = typer.Typer(
        name="kvroute",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _root(
        *,
        is_version: Annotated[
            bool,
            typer.Option(
                "--version",
                callback=_tell_version,
                is_eager=True,
                help="Show the version and exit.",
            ),
        ] = False,
    ) -> None:
        """An HTTP front door for fleets of LLM engines that routes by their KV cache events."""

    for name in names:
        import_module(f"kvroute.commands.{name}").register(app)
    plain_switches(app)
    return app


def _tell_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"kvroute {version('kvroute')}")
        raise typer.Exit


def named_app() -> typer.Typer:
    """The command line as far as the arguments of this process need it."""
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    names: Sequence[str] = [named] if named in COMMANDS else COMMANDS
    return build_app(() if named == "--version" else names)
