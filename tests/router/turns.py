"""Work that is done on the event loop, counted and not timed: which threads call a function, and calls in a turn of the loop."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType


@contextmanager
def threads_of(name: str) -> Iterator[list[int]]:
    """The threads on which functions of that name are called within the block, those among them that begin in it."""
    found: list[int] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == name:
            found.append(threading.get_ident())

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


@dataclass
class Turns:
    """Calls in each turn of the loop, of Python functions and of those written in C."""

    calls: list[int] = field(default_factory=list)

    @property
    def longest(self) -> int:
        """Of any turn."""
        return max(self.calls, default=0)


@contextmanager
def counted_turns() -> Iterator[Turns]:
    """Within the block each turn of the running loop is counted; it never waits for anything."""
    turns, num_calls, is_over = Turns(), 0, False
    loop = asyncio.get_running_loop()

    def note(_frame: FrameType, event: str, _: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    def turn() -> None:
        nonlocal num_calls
        turns.calls.append(num_calls)
        num_calls = 0
        if not is_over:
            loop.call_soon(turn)

    loop.call_soon(turn)
    sys.setprofile(note)
    try:
        yield turns
    finally:
        sys.setprofile(None)
        is_over = True
