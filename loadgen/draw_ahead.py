"""Items of an iterable, drawn in a thread ahead of their use: making them costs the event loop no time.

thread   next(items) ─▶ queue of ``bound`` ─▶ event loop        at the bound the thread waits
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

DRAWN_AHEAD = 32


class _End:
    """After the last item."""


class DrawnAhead(Generic[T]):
    """Draws while ``draw`` runs; iterate over it at the same time, once."""

    def __init__(self, items: Iterable[T], *, bound: int = DRAWN_AHEAD) -> None:
        self._items = iter(items)
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue(bound)

    async def draw(self) -> None:
        """Draw to the end; at most ``bound`` items, and one in the thread, are not taken yet.

        Raises:
            Exception: whatever the iterable raises.
        """
        while not isinstance(item := await asyncio.to_thread(_next, self._items), _End):
            await self._queue.put(item)
        await self._queue.put(_End())

    async def __aiter__(self) -> AsyncIterator[T]:
        """The items in order."""
        while not isinstance(item := await self._queue.get(), _End):
            yield item


def _next(items: Iterator[T]) -> T | _End:
    return next(items, _End())
