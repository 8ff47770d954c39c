"""The entry point: from the first moment on, Ctrl-C and SIGTERM end the process without a traceback, and no socket is
taken for a standard stream.

Until a command is imported there is nothing to give back, so the process is left on the spot; from then on
what runs is unwound.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_LAST_STANDARD = 2


def main() -> None:
    """Run the command that the arguments name.

    Signals that the process was started to ignore stay ignored.
    """
    _fill_closed_streams()
    heeded = [one for one in _NUMBERS if signal.getsignal(one) is not signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, _leave_now)
    from kvroute.command_line import named_app  # noqa: PLC0415  # takes half a second

    app = named_app()
    for number in heeded:
        signal.signal(number, _unwind)
    try:
        app(prog_name="kvroute")
    finally:
        for number in heeded:
            signal.signal(number, _leave_now)


def _fill_closed_streams() -> None:
    """Let no standard stream be closed: what is opened next would have its number, and be written to in its place.

    Python's own ``sys.stdin``, ``sys.stdout``, ``sys.stderr`` stay None where they were closed.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= _LAST_STANDARD:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def _leave_now(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _unwind(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
