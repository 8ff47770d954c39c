"""``kvroute doctor``: a live fleet looked at from outside, without a request that generates anything."""

import math
import os
import ssl
import uuid
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from kvroute.base_url import base_url
from kvroute.doctor import EarTimes, Keys, RoundOptions, VisitOptions, examine, tables
from kvroute.output import JsonFile, console_beside, write_json
from kvroute.running import refuse, run
from kvroute.token_flags import ControlToken, WorkerToken
from kvroute.usage_faults import flag_complaints
from prompt import default_hub_cache
from router.worker_entry import WorkerEntry
from router.worker_tls import WorkerTls


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    url: Annotated[
        list[str],
        typer.Argument(
            metavar="URL",
            help="Workers, or a router's control port, which stands for its workers.",
        ),
    ],
    *,
    tokenizer: Annotated[
        list[str] | None, typer.Option(metavar="MODEL=DIR", help="As the router has it; repeat.")
    ] = None,
    listen: Annotated[float, typer.Option(help="Seconds of live events.")] = 2.0,
    timeout_s: Annotated[
        float, typer.Option(help="Seconds for each worker as a whole, beside --listen.")
    ] = 20.0,
    probe: Annotated[
        bool, typer.Option("--probe", help="Send each worker two chats of one answer token.")
    ] = False,
    token: ControlToken = None,
    worker_token: WorkerToken = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Authorities of https URLs. [default: the system's]")
    ] = None,
    cert_file: Annotated[
        Path | None, typer.Option(help="Certificate to show to https URLs.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="Its key. [default: in the same file]")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Look at a live fleet and name what is wrong, with the engine's flag to change.

    Asks for descriptions, connects to event and replay ports and listens; nothing is changed, and without
    --probe nothing is generated. 64 workers are looked at side by side. Ends with 1 if there is a fault.
    """
    if not (0 < timeout_s < math.inf and 0 <= listen < math.inf):
        refuse("--timeout-s and --listen are numbers of seconds")
    entries = [WorkerEntry(url=base_url("URL", one)) for one in url]
    nonce = uuid.uuid4().hex if probe else None
    bound_s, times = timeout_s + listen, EarTimes(listen_s=listen)
    visit = VisitOptions(bound_s, min(5.0, timeout_s), times, nonce=nonce)
    options = RoundOptions(
        visit,
        Keys(worker_token, token),
        _tokenizers(tokenizer or []),
        _tls(ca_file, cert_file, key_file),
        default_hub_cache(os.environ, Path.home()),
    )
    found = run(examine(entries, options))
    console = console_beside(json_file)
    for one in tables(found):
        console.print(one, highlight=False)
    write_json(json_file, found.to_json())
    if found.num_faults:
        raise typer.Exit(1)


def _tls(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    """As ``worker_tls`` of the router makes it."""
    given = {"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file}
    try:
        return WorkerTls.model_validate(given).context()
    except ValidationError as error:
        refuse(flag_complaints(error))


def _tokenizers(given: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for one in given:
        model, equals, directory = one.partition("=")
        if not (model and equals and directory):
            refuse(f"--tokenizer: {one!r} is not MODEL=DIR")
        if not (Path(directory) / "tokenizer.json").is_file():
            refuse(f"--tokenizer: there is no tokenizer.json in {directory}")
        found[model] = Path(directory)
    return found
