"""One run of a tap: from the sockets to the outlets, until a bound, a signal, or nobody reads any more."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvroute.tap.heard import Batch, Heard
from kvroute.tap.listening import Tick, told_by
from kvroute.tap.outlets import Outlet
from kvroute.tap.recording import Recordings
from kvroute.tap.summary import Summary
from protocol import EventSource


@dataclass(frozen=True, slots=True)
class TapBounds:
    """When to stop; None = never.

    Attributes:
        max_events: shown. A batch is recorded whole.
        for_s: seconds.
        is_abandoned: asked every quarter of a second: does nobody listen any more?
    """

    max_events: int | None = None
    for_s: float | None = None
    is_abandoned: Callable[[], bool] = lambda: False


class Tapping:
    """Tells the sources' story to every outlet.

    Attributes:
        summary: what was heard so far.
    """

    def __init__(
        self, outlets: Sequence[Outlet], recordings: Recordings | None, bounds: TapBounds
    ) -> None:
        self._outlets = outlets
        self._recordings = recordings
        self._bounds = bounds
        self.summary = Summary()

    async def run(self, sources: Sequence[EventSource]) -> None:
        """Until a bound is reached or cancelled; outlets and recordings are closed then, in any case.

        Raises:
            BrokenPipeError: nobody reads an outlet any more.
            OSError: a recording cannot be written.
            ListenError: an endpoint is none.
        """
        started = time.monotonic()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.for_s):
                    await self._listen(sources)
        finally:
            if self._recordings is not None:
                self._recordings.close()
            for outlet in self._outlets:
                outlet.close(self.summary, time.monotonic() - started)

    async def _listen(self, sources: Sequence[EventSource]) -> None:
        async with told_by(sources) as told:
            async for one in told:
                if isinstance(one, Tick):
                    if self._bounds.is_abandoned():
                        return
                elif not self._tell(*one):
                    return

    def _tell(self, source: EventSource, heard: Heard) -> bool:
        """Record it, show as much of it as is still wanted; False where that is the end."""
        if self._recordings is not None:
            self._recordings.add(heard)
        left = self._num_left()
        if left is not None and isinstance(heard, Batch):
            events = heard.batch.events[:left]
            heard = replace(heard, batch=replace(heard.batch, events=events))
        self.summary.add(source.rank.worker, heard)
        for outlet in self._outlets:
            outlet.show(heard)
        return self._num_left() != 0

    def _num_left(self) -> int | None:
        most = self._bounds.max_events
        return None if most is None else most - self.summary.num_events
