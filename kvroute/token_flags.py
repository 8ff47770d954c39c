"""Flags for tokens, which are refused where they cannot go into a header."""

from typing import Annotated, TypeAlias

import typer

from router.bearer_token import token_fault


def _require_token(given: str | None) -> str | None:
    """A token that can be sent.

    Raises:
        typer.BadParameter: it cannot; the words do not repeat it.
    """
    if given is not None and (fault := token_fault(given)) is not None:
        raise typer.BadParameter(fault)
    return given


ControlToken: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="KVROUTE_CONTROL_TOKEN", callback=_require_token, help="Token of the control port."
    ),
]
WorkerToken: TypeAlias = Annotated[
    str | None,
    typer.Option(
        envvar="KVROUTE_WORKER_TOKEN",
        callback=_require_token,
        help="Token that is sent to workers.",
    ),
]
