"""Listening to a worker's event sources for a while: the shell around ``Hearing``."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kvroute.doctor.hearing import Hearing
from kvroute.tap.listening import ListenError, Tick, told_by
from protocol import EventSource
from router.causes import cause_of
from router.plain_text import plain


@dataclass(frozen=True, slots=True)
class EarTimes:
    """Seconds.

    Attributes:
        connect_s: to connect every source.
        replay_s: for every buffer to be replayed.
        listen_s: of live events, after that.
    """

    connect_s: float = 3.0
    replay_s: float = 6.0
    listen_s: float = 2.0


@dataclass(frozen=True, slots=True)
class LivePart:
    """The live part of listening, as others see it.

    Attributes:
        has_begun: set when every source is connected and replayed, or will not be.
        has_heard: set with the first live batch.
        may_end: it does not end before this is set.
    """

    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    has_heard: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)


async def listen_to(
    sources: Sequence[EventSource], times: EarTimes, live: LivePart
) -> list[Hearing]:
    """Hear what is buffered and what comes, on every topic.

    Takes all times together at most, and what it waits for ``live.may_end``.
    """
    hearings = {source: Hearing(source) for source in _on_all_topics(sources)}
    if not hearings:
        live.has_begun.set()
        return []
    try:
        await _listen(hearings, times, live)
    except ListenError as error:
        for hearing in hearings.values():
            hearing.why_unreachable = str(error)
    finally:
        live.has_begun.set()
    lost = [one for one in hearings.values() if not one.was_connected and not one.why_unreachable]
    silent = [one for one in hearings.values() if one.why_no_replay is not None]
    async with asyncio.TaskGroup() as group:
        for one in lost:
            group.create_task(_explain(one))
        for one in silent:
            group.create_task(_explain_replay(one))
    return list(hearings.values())


def _on_all_topics(sources: Sequence[EventSource]) -> list[EventSource]:
    return [replace(one, topic="") for one in sources]


async def _listen(hearings: dict[EventSource, Hearing], times: EarTimes, live: LivePart) -> None:
    started = time.monotonic()
    settled_at: float | None = None
    async with told_by(list(hearings)) as told:
        async for one in told:
            if not isinstance(one, Tick):
                hearings[one[0]].add(one[1])
                if hearings[one[0]].num_live:
                    live.has_heard.set()
            now = time.monotonic()
            if settled_at is None and _is_settled(hearings.values(), now - started, times):
                settled_at = now
                live.has_begun.set()
            is_over = settled_at is not None and now - settled_at >= times.listen_s
            if is_over and live.may_end.is_set():
                return


def _is_settled(hearings: Iterable[Hearing], waited_s: float, times: EarTimes) -> bool:
    """Is there nothing to wait for any more but live events?"""
    if waited_s >= times.connect_s + times.replay_s:
        return True
    return all(
        one.is_settled or (waited_s >= times.connect_s and not one.was_connected)
        for one in hearings
    )


async def _explain(hearing: Hearing) -> None:
    """Say why there is no connection."""
    why = await _why_closed(hearing.source.endpoint)
    hearing.why_unreachable = why or "something listens there that is no event socket"


async def _explain_replay(hearing: Hearing) -> None:
    """Say more where the replay port is closed."""
    endpoint = hearing.source.replay_endpoint or ""
    why = await _why_closed(endpoint)
    if why is not None:
        hearing.why_no_replay = f"{endpoint}: {why}"


async def _why_closed(endpoint: str, timeout_s: float = 2.0) -> str | None:
    """Why a TCP connection to the port fails; None where it does not."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"no connection within {timeout_s:g} s"
    except (OSError, ValueError) as error:
        return plain(cause_of(error))
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None
