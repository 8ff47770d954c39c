"""Faults of event transport that users of comparable systems met: restarts, losses, late joins, silence.

The whole brain is driven as the router drives it: registry, streams, index. Sockets have tests of their own
(`test_subscriber_*`); what they tell is told here by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer import FindingKind, ForgetReason, Prompt, RequestReplay, Trust
from protocol import (
    BlockStored,
    EngineKind,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    encode_batch,
    live_frames,
    pack_tokens,
    replay_frames,
)
from tests.router.brains import TestFleet, fleet, source

SIZE = 4
CHAIN = 10


def _tokens(start: int, num_blocks: int) -> list[int]:
    return list(range(1000 * start, 1000 * start + SIZE * num_blocks))


def _chain(start: int, num_blocks: int, first: int = 0) -> list[BlockStored]:
    """A prompt's blocks, one event each, from block ``first`` on."""
    hashes = [1000 * start + i for i in range(num_blocks)]
    tokens = _tokens(start, num_blocks)
    events = []
    for parent, i in zip([None, *hashes], range(num_blocks), strict=False):
        events.append(
            BlockStored([hashes[i]], parent, tokens[SIZE * i : SIZE * (i + 1)], SIZE, "GPU")
        )
    return events[first:]


@dataclass
class Publisher:
    """One process of an engine: it numbers what it says and keeps all of it for replays."""

    stamp: float
    said: list[bytes]

    def say(self, *events: BlockStored) -> tuple[int, bytes]:
        """The next batch."""
        seq = len(self.said)
        self.said.append(encode_batch(EventBatch(self.stamp + seq, events)))
        return seq, self.said[seq]


class Wire:
    """A worker's sockets as the intake hears of them, and the replay socket at their other end."""

    def __init__(self, one: TestFleet, spoken: EventSource) -> None:
        self.one, self.source = one, spoken
        self.buffer_steps = 10_000
        self.asked: list[int] = []

    def live(self, publisher: Publisher, seq: int) -> None:
        frames = live_frames(LiveMessage(b"", seq, publisher.said[seq]))
        self._settle(publisher, self.one.brains.intake.on_live(self.source, frames, self._now))

    def connected(self, publisher: Publisher) -> None:
        self._settle(publisher, self.one.brains.intake.on_connected(self.source, self._now))

    def disconnected(self) -> None:
        self.one.brains.intake.on_disconnected(self.source, self._now)

    def pass_time(self, publisher: Publisher, seconds: int) -> None:
        for _ in range(seconds):
            self.one.tick(1.0)
            for _, request in self.one.brains.intake.on_tick(self._now):
                self._settle(publisher, [request])

    @property
    def _now(self) -> float:
        return self.one.clock.now

    def _settle(self, publisher: Publisher, requests: Sequence[RequestReplay]) -> None:
        """Answer what is asked for until nothing more is."""
        while requests:
            first_seq = requests[-1].first_seq
            self.asked.append(first_seq)
            oldest = max(0, len(publisher.said) - self.buffer_steps)
            replies: list[ReplayReply | ReplayEnd] = [
                ReplayReply(seq, publisher.said[seq])
                for seq in range(max(first_seq, oldest), len(publisher.said))
            ]
            requests = []
            for reply in [*replies, ReplayEnd()]:
                frames = replay_frames(b"", reply)
                requests = self.one.brains.intake.on_replay(self.source, frames, self._now)
                if requests:
                    break


def _score(one: TestFleet, name: str, tokens: Sequence[int]) -> int:
    """Blocks of the prompt that the decision endpoint would credit to the worker."""
    prompt = Prompt(pack_tokens([*tokens, 1]), "m", None, None)
    (match,) = one.brains.index.match(prompt, [Rank(WorkerId(name))], one.clock.now)
    return match.matched_blocks


def _trust(one: TestFleet, name: str) -> Trust:
    return one.brains.index.trust(Rank(WorkerId(name)), one.clock.now)


@contextmanager
def _two_workers(*, has_replay: bool) -> Iterator[tuple[TestFleet, Wire, Wire]]:
    with fleet() as one:
        wires = []
        for name, port in (("w0", 5557), ("w1", 6557)):
            spoken = source(name, port, has_replay=has_replay)
            one.learn(name, sources=(spoken,), block_size=SIZE, engine=EngineKind.VLLM)
            wires.append(Wire(one, spoken))
        yield one, wires[0], wires[1]


# Restarts: the sequence falls back after one in place, and after a new registration


@pytest.mark.parametrize("has_replay", [False, True])
@pytest.mark.parametrize("is_break_seen", [False, True])
@settings(max_examples=25, deadline=None)
@given(num_before=st.integers(1, 12), num_missed=st.integers(0, 3), num_after=st.integers(1, 6))
def test_a_restart_in_place_forgets_what_was_before(
    has_replay: bool, is_break_seen: bool, num_before: int, num_missed: int, num_after: int
) -> None:
    """Whatever the numbers on both sides of a restart, none of the old claims is left.

    One kind is not seen without a replay socket, or without the break that a restart leads to: a first
    heard number above all that was before.
    """
    with _two_workers(has_replay=has_replay) as (one, wire, other):
        old, new, neighbour = Publisher(0.0, []), Publisher(1e6, []), Publisher(2e6, [])
        for event in _chain(1, num_before):
            wire.live(old, old.say(event)[0])
        for event in _chain(1, CHAIN):
            other.live(neighbour, neighbour.say(event)[0])
        assert _score(one, "w0", _tokens(1, num_before)) == num_before
        if is_break_seen:
            wire.disconnected()
        events = _chain(2, num_missed + num_after)
        for event in events[:num_missed]:
            new.say(event)
        if is_break_seen:
            wire.connected(new)
        for event in events[num_missed:]:
            wire.live(new, new.say(event)[0])
        is_told = has_replay and is_break_seen
        if not is_told and num_missed >= num_before:
            return
        assert _score(one, "w0", _tokens(1, num_before)) == 0
        heard_whole = has_replay or num_missed == 0
        if heard_whole:
            assert _score(one, "w0", _tokens(2, len(events))) == len(events)
            assert _trust(one, "w0") is Trust.EXACT
        states = {state.rank.worker: state for state in one.brains.index.rank_states(0.0)}
        assert states[WorkerId("w0")].resets == {ForgetReason.RESTARTED: 1}
        assert states[WorkerId("w1")].resets == {}
        assert _score(one, "w1", _tokens(1, CHAIN)) == CHAIN


@pytest.mark.parametrize("has_replay", [False, True])
def test_a_worker_that_is_registered_again_begins_anew(has_replay: bool) -> None:
    """Number 0 is no duplicate, no gap, no restart; nothing that was queued comes back."""
    with _two_workers(has_replay=has_replay) as (one, wire, _):
        old, new = Publisher(0.0, []), Publisher(1e6, [])
        for event in _chain(1, CHAIN):
            wire.live(old, old.say(event)[0])
        one.registry.remove(WorkerId("w0"))
        wire.live(old, old.say(*_chain(3, 2))[0])  # still in the queue
        wire.connected(old)
        wire.disconnected()
        wire.pass_time(old, 40)
        assert one.brains.index.rank_states(0.0)[0].rank.worker == "w1"
        assert one.brains.intake.status(wire.source.rank) is None
        assert one.brains.intake.num_stray_messages == 3
        one.learn("w0", sources=(wire.source,), block_size=SIZE, engine=EngineKind.VLLM)
        assert _trust(one, "w0") is Trust.NONE
        for event in _chain(2, 3):
            wire.live(new, new.say(event)[0])
        assert _score(one, "w0", _tokens(1, CHAIN)) == 0
        assert _score(one, "w0", _tokens(2, 3)) == 3
        status = one.brains.intake.status(wire.source.rank)
        assert status is not None
        counters = status.counters
        assert (counters.duplicates, counters.gaps, counters.num_resets) == (0, 0, 0)
        assert _trust(one, "w0") is Trust.EXACT


def _removal_and_return(one: TestFleet, wire: Wire) -> None:
    one.registry.remove(WorkerId("w0"))
    one.learn("w0", sources=(wire.source,), block_size=SIZE, engine=EngineKind.VLLM)


def _other_version(one: TestFleet, wire: Wire) -> None:
    one.learn("w0", sources=(wire.source,), block_size=SIZE, engine=EngineKind.SGLANG)


@pytest.mark.parametrize("change", [_removal_and_return, _other_version])
def test_a_replay_under_way_does_not_reach_the_worker_that_came_after(
    change: Callable[[TestFleet, Wire], None],
) -> None:
    with _two_workers(has_replay=True) as (one, wire, _):
        old = Publisher(0.0, [])
        for event in _chain(1, CHAIN):
            old.say(event)
        one.brains.intake.on_connected(wire.source, one.clock.now)
        assert one.brains.intake.is_replaying(wire.source)
        change(one, wire)
        for seq, body in enumerate(old.said):
            frames = replay_frames(b"", ReplayReply(seq, body))
            assert not one.brains.intake.on_replay(wire.source, frames, one.clock.now)
        assert _score(one, "w0", _tokens(1, CHAIN)) == 0
        assert _trust(one, "w0") is Trust.NONE


# Losses


@pytest.mark.parametrize("has_replay", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    withheld=st.sets(st.integers(1, 18), max_size=12),
    buffer_steps=st.integers(1, 20),
)
def test_what_is_missed_is_replayed_or_told(
    has_replay: bool, withheld: set[int], buffer_steps: int
) -> None:
    """Twenty batches, some withheld from the live socket, a buffer of some length: equal, or not exact."""
    with _two_workers(has_replay=has_replay) as (one, wire, other):
        wire.buffer_steps = buffer_steps
        publisher, neighbour = Publisher(0.0, []), Publisher(2e6, [])
        other.live(neighbour, neighbour.say(*_chain(1, CHAIN))[0])
        for event in _chain(1, 20):
            seq, _ = publisher.say(event)
            if seq not in withheld:
                wire.live(publisher, seq)
        longest = max(
            (end - start for start, end in pairwise(sorted({*range(20)} - withheld))), default=1
        )
        if not withheld or (has_replay and buffer_steps >= longest):
            assert _score(one, "w0", _tokens(1, 20)) == 20
            assert _trust(one, "w0") is Trust.EXACT
        else:
            status = one.brains.intake.status(wire.source.rank)
            assert status is not None
            assert status.counters.losses > 0
            assert _trust(one, "w0") is Trust.DEGRADED
            found = {gap.kind: gap for gap in one.brains.index.findings(one.clock.now)}
            evidence = found[FindingKind.LOSS_UNREPAIRED].evidence
            assert evidence["losses"] == status.counters.losses
        assert _score(one, "w1", _tokens(1, CHAIN)) == CHAIN
        assert _trust(one, "w1") is Trust.EXACT


# Late joins


@pytest.mark.parametrize("has_replay", [False, True])
@settings(max_examples=40, deadline=None)
@given(num_missed=st.integers(1, 6), num_heard=st.integers(1, 6))
def test_descendants_without_their_roots(has_replay: bool, num_missed: int, num_heard: int) -> None:
    """A late joiner: what hangs in the air matches nothing until what it hangs from is known."""
    num_blocks = num_missed + num_heard
    tokens = _tokens(1, num_blocks)
    with _two_workers(has_replay=has_replay) as (one, wire, _):
        publisher = Publisher(0.0, [])
        for event in _chain(1, num_blocks):
            seq, _ = publisher.say(event)
            if seq >= num_missed:
                wire.live(publisher, seq)
        whole = num_blocks if has_replay else 0
        assert _score(one, "w0", tokens) == whole
        for start in range(1, num_blocks):
            assert _score(one, "w0", tokens[SIZE * start :]) == 0, "no prompt begins there"
        if has_replay:
            assert _trust(one, "w0") is Trust.EXACT
            return
        assert _trust(one, "w0") is Trust.JOINED
        assert one.brains.index.rank_states(one.clock.now)[0].orphans == num_heard
        for event in _chain(1, num_missed):  # announced again: the others are not
            wire.live(publisher, publisher.say(event)[0])
        assert _score(one, "w0", tokens) == num_blocks
        assert one.brains.index.rank_states(one.clock.now)[0].orphans == 0


# Silence, and a publisher that is elsewhere


@pytest.mark.parametrize("has_replay", [False, True])
def test_a_silent_publisher_that_owes_events_is_stale_and_its_age_grows(
    has_replay: bool,
) -> None:
    """The connection looks well and says nothing: claims are doubted, until the publisher is heard again."""
    with _two_workers(has_replay=has_replay) as (one, wire, _):
        publisher = Publisher(0.0, [])
        wire.connected(publisher)
        for event in _chain(1, CHAIN):
            wire.live(publisher, publisher.say(event)[0])
        assert _trust(one, "w0") is Trust.EXACT
        for number in range(3):  # served, and no event of it is heard
            prompt = Prompt(pack_tokens(_tokens(50 + number, 8)), "m", None, None)
            rank, now = wire.source.rank, one.clock.now
            (match,) = one.brains.index.match(prompt, [rank], now)
            one.brains.index.predict(rank, prompt, now)
            one.tick(1.0)
            one.brains.index.observe(rank, prompt, one.clock.now)
            one.brains.index.report(rank, prompt, 0, match, now, one.clock.now)
        ages = []
        for _ in range(4):
            one.tick(20.0)
            status = one.brains.intake.status(wire.source.rank)
            assert status is not None
            assert status.last_event_at is not None
            ages.append(one.clock.now - status.last_event_at)
        assert ages == sorted(ages)
        assert ages[-1] > 60
        assert _trust(one, "w0") is Trust.STALE
        kinds = {finding.kind.value for finding in one.brains.index.findings(one.clock.now)}
        assert "events_missing" in kinds
        moved = Publisher(1e6, [])
        wire.disconnected()
        wire.connected(moved)
        wire.live(moved, moved.say(*_chain(2, 2))[0])
        assert _trust(one, "w0") is Trust.EXACT
        assert (_score(one, "w0", _tokens(1, CHAIN)), _score(one, "w0", _tokens(2, 2))) == (0, 2)
