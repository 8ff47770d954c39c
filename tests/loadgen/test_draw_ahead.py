"""Items come in order from another thread, and no more of them are drawn ahead than the bound."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from loadgen.draw_ahead import DrawnAhead


async def taken(drawn: DrawnAhead[int]) -> list[int]:
    return [item async for item in drawn]


@pytest.mark.parametrize("items", [[], [1], list(range(100))])
async def test_all_items_in_order(items: list[int]) -> None:
    drawn = DrawnAhead(items, bound=3)
    async with asyncio.TaskGroup() as group:
        group.create_task(drawn.draw())
        assert await taken(drawn) == items


async def test_no_more_than_the_bound_is_drawn_ahead() -> None:
    num_drawn = 0
    threads: set[int] = set()
    is_full = threading.Event()

    def items() -> Iterator[int]:
        nonlocal num_drawn
        while True:
            num_drawn += 1
            threads.add(threading.get_ident())
            if num_drawn == 5:
                is_full.set()
            yield num_drawn

    drawn = DrawnAhead(items(), bound=4)
    drawing = asyncio.create_task(drawn.draw())
    assert await asyncio.to_thread(is_full.wait, 10.0)
    for _ in range(100):
        await asyncio.sleep(0)
    drawing.cancel()
    assert num_drawn == 5
    assert threading.get_ident() not in threads


async def test_what_drawing_raises_ends_the_drawing() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    drawn = DrawnAhead(items())
    with pytest.raises(LookupError, match="no more"):
        await drawn.draw()
