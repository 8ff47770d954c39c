"""The one command line.

Only the module of the command that is named is imported, so that a worker does not wait for the router's
imports, nor the router for the load generator's; help and mistakes import them all.

Exit codes: 0 all went well, 1 it did not, 2 wrong flags or configuration, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

import typer

COMMANDS = ("serve", "worker", "demo", "scenario", "replay", "explain")


def build_app(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with the named commands in it."""
    app = typer.Typer(
        name="kvroute",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def _root() -> None:
        """An HTTP front door for fleets of LLM engines that routes by their KV cache events."""

    for name in names:
        import_module(f"kvroute.commands.{name}").register(app)
    return app


def main() -> None:
    """Run the command that the arguments name."""
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    build_app([named] if named in COMMANDS else COMMANDS)(prog_name="kvroute")
