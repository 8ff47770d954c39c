"""SIGTERM and SIGINT, as events that can be waited for."""

import asyncio
import contextlib
import signal


class StopSignal:
    """Within the block the signals are told here; a second one is told apart."""

    def __enter__(self) -> "StopSignal":
        self._loop = asyncio.get_running_loop()
        self._first, self._again = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)

    async def wait(self) -> None:
        """Until the first signal."""
        await self._first.wait()

    async def wait_again(self, timeout_s: float | None) -> None:
        """Until a further signal, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._again.wait()

    def _on_signal(self) -> None:
        if self._first.is_set():
            self._again.set()
        self._first.set()
