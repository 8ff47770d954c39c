"""``kvroute tap``: the live event stream of an engine, decoded for people or recorded."""

import contextlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kvroute.output import JsonFile
from kvroute.running import fail, refuse, run
from kvroute.tap import (
    JsonLines,
    Kind,
    Lines,
    ListenError,
    Outlet,
    Recordings,
    SilentWorkerError,
    TapBounds,
    Tapping,
    TargetError,
    endpoint_source,
    is_stdout_gone,
    leave_stdout,
    require_replay,
    who_is_at,
    worker_entry,
    worker_sources,
)
from kvroute.token_flags import WorkerToken
from protocol import EventSource


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tap")(tap)


def tap(
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT",
            help="tcp://host:port of an engine's events, or the http:// URL of a worker, whose endpoints are asked for.",
        ),
    ],
    *,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="ENDPOINT",
            help="Begin with what is buffered there; engine = where the worker at the URL says.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Hear topics that begin so. [default: all, or what the worker says]"),
    ] = None,
    bind: Annotated[
        bool,
        typer.Option("--bind", help="Listen at ENDPOINT for an engine that connects to it."),
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show token ids: prompts.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many events.")] = None,
    for_s: Annotated[
        float | None, typer.Option("--for", help="Stop after so many seconds.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the frames, token ids among them, to a new FILE."),
    ] = None,
    worker_token: WorkerToken = None,
    json_file: JsonFile = None,
) -> None:
    """Show the live event stream of an engine, one line an event, until Ctrl-C.

    Gaps, restarts and what cannot be read stand between the events, marked with !!. Nothing is repaired, and
    the engine is not disturbed. With --json each event and note is an object on a line of its own.
    Ends with 1 if there never was a connection.
    """
    if for_s is not None and not 0 < for_s < math.inf:
        refuse("--for: a number of seconds above 0")
    sources = _sources(endpoint, replay, topic, worker_token, is_bound=bind)
    recordings = _recordings(record, has_ranks=len(sources) > 1)
    why_not = run(_greeted(sources))
    bounds = TapBounds(count, for_s, is_stdout_gone)
    worker = sources[0].rank.worker
    with _outlets(json_file, worker, shows_tokens=tokens) as outlets:
        tapping = Tapping(outlets, recordings, bounds)
        _run(tapping, sources)
    if recordings is not None:
        for path in recordings.paths:
            typer.echo(f"recorded: {path}", err=True)
    if not tapping.summary.was_connected:
        fail(f"no connection to {sources[0].endpoint}" + (f": {why_not}" if why_not else ""))


async def _greeted(sources: tuple[EventSource, ...]) -> str:
    """Ask the first source who it is before it is listened to; why nobody is there so far, which is no end yet.

    Raises:
        typer.Exit: with 1, it is there and can never publish events.
    """
    source = sources[0]
    if source.is_bound:
        return ""
    found = await who_is_at(source.endpoint)
    fault = found.fault(source.endpoint)
    if fault is not None:
        fail(fault)
    if found.kind is not Kind.NOBODY:
        return ""
    typer.echo(f"nobody is at {source.endpoint} yet: {found.detail}; waiting", err=True)
    return found.detail


def _run(tapping: Tapping, sources: tuple[EventSource, ...]) -> None:
    try:
        run(tapping.run(sources))
    except BrokenPipeError:
        leave_stdout()
        raise typer.Exit(0) from None
    except ListenError as error:
        refuse(f"ENDPOINT: {error}")
    except OSError as error:
        fail(f"cannot write: {error}")


def _sources(
    endpoint: str,
    replay: str | None,
    topic: str | None,
    token: str | None,
    *,
    is_bound: bool,
) -> tuple[EventSource, ...]:
    is_worker = endpoint.startswith(("http://", "https://"))
    if is_worker and is_bound:
        refuse("--bind: an endpoint is bound, not the URL of a worker")
    try:
        if not is_worker:
            return (endpoint_source(endpoint, replay, topic or "", is_bound=is_bound),)
        require_replay(replay)
        entry = worker_entry(endpoint)
    except TargetError as error:
        refuse(str(error))
    try:
        return run(worker_sources(entry, replay=replay, topic=topic, token=token))
    except SilentWorkerError as error:
        fail(error)


def _recordings(path: Path | None, *, has_ranks: bool) -> Recordings | None:
    """Refuse what cannot be written before anything is heard; what is there is never overwritten."""
    if path is None:
        return None
    if path.exists():
        refuse(f"--record: {path} exists")
    if not path.parent.is_dir():
        refuse(f"--record: there is no directory {path.parent}")
    return Recordings(path, has_ranks=has_ranks)


@contextlib.contextmanager
def _outlets(json_file: str | None, worker: str, *, shows_tokens: bool) -> Iterator[list[Outlet]]:
    """Lines to stdout and objects to the file; objects alone where stdout is the file."""
    if json_file is None:
        yield [Lines(sys.stdout, shows_tokens=shows_tokens)]
    elif json_file == "-":
        yield [
            JsonLines(sys.stdout.buffer, worker, shows_tokens),
            Lines(sys.stderr, shows_events=False),
        ]
    else:
        with Path(json_file).open("wb") as file:
            yield [
                Lines(sys.stdout, shows_tokens=shows_tokens),
                JsonLines(file, worker, shows_tokens),
            ]
