"""``kvroute serve``: the router."""

import gc
from pathlib import Path
from typing import Annotated

import typer

from kvroute.logs import LogLevel, set_up_logging
from kvroute.running import fail, refuse, run_service
from router.access_log_config import LogFormat
from router.config import ConfigError, load_config
from router.ports import PortInUseError
from router.service import PartFailedError, serve
from scoring import PolicyName


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve_router)


def serve_router(
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Base URL of an engine; repeat for each."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file; flags go before it.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the data port. [default: 0.0.0.0]")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The data port. [default: 8080]")] = None,
    control_host: Annotated[
        str | None, typer.Option(help="Address of the control port. [default: 127.0.0.1]")
    ] = None,
    control_port: Annotated[
        int | None, typer.Option(help="The control port. [default: 8081]")
    ] = None,
    policy: Annotated[
        PolicyName | None, typer.Option(help="Who gets a request. [default: cost]")
    ] = None,
    tokenizer: Annotated[
        list[str] | None, typer.Option(metavar="MODEL=DIR", help="A model's tokenizer; repeat.")
    ] = None,
    access_log: Annotated[
        LogFormat | None,
        typer.Option(help="A line for each request, to standard output. [default: off]"),
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(help="What is logged. [default: info]")
    ] = None,
) -> None:
    """Run the router in front of the given engines until SIGTERM.

    Event endpoints, block size, ranks and model are learned from each engine. Everything can also be set
    in the file and in KVROUTE_* variables; the file knows more than the flags.
    """
    overrides = {
        "workers": worker or None,
        "host": host,
        "port": port,
        "control_host": control_host,
        "control_port": control_port,
        "policy": policy,
        "tokenizers": _tokenizers(tokenizer or []) or None,
        "access_log": None if access_log is None else {"format": access_log},
        "log_level": log_level,
    }
    try:
        settings = load_config(config, overrides)
    except ConfigError as error:
        refuse(str(error))
    set_up_logging(LogLevel(settings.log_level))
    _calm_collector()
    try:
        run_service(serve(settings))
    except ConfigError as error:
        refuse(str(error))
    except (PortInUseError, PartFailedError) as error:
        fail(str(error))


def _calm_collector() -> None:
    """Look for cyclic garbage seldom, and never at what the imports made.

    A request makes hundreds of objects and no cycles; with Python's own thresholds the search for cycles
    takes a tenth of the time of a small request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _tokenizers(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        model, equals, directory = one.partition("=")
        if not (model and equals and directory):
            refuse(f"--tokenizer: {one!r} is not MODEL=DIR")
        found[model] = directory
    return found
