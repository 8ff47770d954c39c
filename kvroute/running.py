"""How a command runs, and how it ends: asyncio, signals, exit codes.

0 all went well; 1 it did not, or somebody cannot be reached; 2 wrong flags or configuration; 130 interrupted by
Ctrl-C, 143 ended by SIGTERM. Services that such a signal stops in order end with 0.
"""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import typer

T = TypeVar("T")


def run(work: Coroutine[None, None, T]) -> T:
    """Run to the end. SIGTERM, like Ctrl-C, cancels the work, so that what it holds is given back.

    Raises:
        typer.Exit: with 130 after Ctrl-C, 143 after SIGTERM.
    """
    try:
        with _signals_kept():
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return asyncio.run(_cancelled_by_sigterm(work))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except asyncio.CancelledError:
        raise typer.Exit(143) from None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """What Ctrl-C and SIGTERM do is the same afterwards: event loops leave Python's own ways behind."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415  # not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _cancelled_by_sigterm(work: Coroutine[None, None, T]) -> T:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def run_service(service: Coroutine[None, None, None]) -> None:
    """Run a service, which minds signals itself, to its end, on the fastest event loop there is."""
    with _signals_kept(), asyncio.Runner(loop_factory=_new_event_loop) as runner:
        runner.run(service)


def listen_words(host: str, port: int, error: OSError) -> str:
    """What is wrong with the address where that is what is wrong; else the error's own words."""
    words, tail, _ = (error.strerror or "").partition(" (while attempting to bind")
    return f"cannot listen on {host}:{port}: {words}" if tail else str(error)


def refuse(what: str) -> NoReturn:
    """End with 2: wrong flags or configuration. ``what`` names the bad field."""
    typer.echo(f"kvroute: {what}", err=True)
    raise typer.Exit(2)


def fail(what: str | Exception) -> NoReturn:
    """End with 1: it did not go well. Notes of an error are shown below it."""
    typer.echo(f"kvroute: {what}", err=True)
    for note in getattr(what, "__notes__", ()):
        typer.echo(f"  {note}", err=True)
    raise typer.Exit(1)
