"""The waiting room: whose turn it is, and who makes room; any order of calls against an oracle that looks at everybody."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol import Rank, WorkerId
from router.waiting_room import RoomFullError, Waiter, WaitingRoom

A, B, C = (Rank(WorkerId(name)) for name in "abc")
RANKS = (A, B, C)


def waiter(*takers: Rank, priority: int = 0, at: float = 0.0, until: float = 100.0) -> Waiter:
    return Waiter(priority, at, until, frozenset(takers))


def room_of(*waiters: Waiter, max_waiting: int = 10) -> WaitingRoom[Waiter]:
    room: WaitingRoom[Waiter] = WaitingRoom(max_waiting)
    for one in waiters:
        assert room.enter(one) is None
    room.check()
    return room


def turns(room: WaitingRoom[Waiter]) -> list[Waiter]:
    """Everybody who is tried, where each is placed."""
    tried = []
    while (one := room.next()) is not None:
        tried.append(one)
        room.placed(one)
        room.check()
    return tried


def test_the_higher_priority_goes_first_and_among_equals_the_earlier_arrival() -> None:
    late, early, low, urgent = (
        waiter(A, at=2.0),
        waiter(A, at=1.0),
        waiter(A, priority=-1),
        waiter(A, priority=5, at=9.0),
    )
    room = room_of(late, early, low, urgent)
    room.free_any()
    assert turns(room) == [urgent, early, late, low]


def test_nobody_is_tried_before_anything_has_happened() -> None:
    room = room_of(waiter(A))
    assert room.next() is None


def test_one_rank_that_is_freed_is_one_turn() -> None:
    first, second = waiter(A), waiter(A)
    room = room_of(first, second)
    room.free(A)
    assert turns(room) == [first]
    room.free(A)
    room.free(A)
    assert turns(room) == [second]


def test_who_cannot_use_a_rank_holds_nobody_up_who_can() -> None:
    urgent, able = waiter(B, priority=9), waiter(A, B)
    room = room_of(urgent, able)
    room.free(A)
    assert turns(room) == [able]
    assert list(room) == [urgent]


def test_where_one_finds_no_room_those_who_wait_for_the_same_are_not_tried() -> None:
    stuck, same, other = waiter(A), waiter(A), waiter(B)
    room = room_of(stuck, same, other)
    room.free_any()
    assert room.next() is stuck
    room.stuck(stuck)
    assert turns(room) == [other]
    room.free(A)
    assert turns(room) == [stuck]


def test_a_rank_freed_for_nobody_is_not_kept_for_whoever_comes() -> None:
    room = room_of(waiter(A))
    room.free(B)
    assert turns(room) == []
    room.enter(waiter(B))
    assert turns(room) == []


def test_a_full_room_takes_only_a_higher_priority_in_place_of_the_last() -> None:
    first, last = waiter(A, at=1.0), waiter(A, at=2.0)
    room = room_of(first, last, max_waiting=2)
    for refused in (waiter(A, at=3.0), waiter(A, at=0.5), waiter(A, priority=-1)):
        with pytest.raises(RoomFullError):
            room.enter(refused)
    urgent = waiter(B, priority=1)
    assert room.enter(urgent) is last
    room.check()
    assert list(room) == [urgent, first]


def test_a_room_of_no_places_takes_nobody() -> None:
    with pytest.raises(RoomFullError):
        room_of(max_waiting=0).enter(waiter(A, priority=100))


def test_who_has_left_is_gone_and_leaves_only_once() -> None:
    gone, staying = waiter(A), waiter(A)
    room = room_of(gone, staying)
    assert room.leave(gone)
    assert not room.leave(gone)
    assert gone not in room
    room.free(A)
    assert turns(room) == [staying]


def test_time_is_over_at_the_deadline_and_for_those_alone() -> None:
    soon, later = waiter(A, until=5.0), waiter(A, until=6.0)
    room = room_of(later, soon)
    assert room.next_deadline() == 5.0
    assert room.expire(4.9) == []
    assert room.expire(5.0) == [soon]
    assert room.next_deadline() == 6.0
    assert room.expire(100.0) == [later]
    assert room.next_deadline() is None
    room.check()


def test_other_workers_are_waited_for_as_they_are_told() -> None:
    one, two = waiter(A), waiter(A)
    room = room_of(one, two)
    room.free_any()
    room.regroup(lambda waiter: frozenset({B}) if waiter is two else waiter.takers)
    room.check()
    assert room.next() is one
    room.stuck(one)
    assert room.next() is two
    room.stuck(two)
    room.free(B)
    assert turns(room) == [two]


class RoomMachine(RuleBasedStateMachine):
    """Three ranks of some places each. The oracle looks at everybody, at each rank, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.room: WaitingRoom[Waiter] = WaitingRoom(6)
        self.waiting: list[Waiter] = []
        self.well = dict.fromkeys(RANKS, True)

    @initialize(capacity=st.integers(1, 3))
    def start(self, capacity: int) -> None:
        self.capacity = capacity
        self.busy = dict.fromkeys(RANKS, 0)

    @rule(
        takers=st.frozensets(st.sampled_from(RANKS)),
        priority=st.integers(-1, 1),
        waits_s=st.floats(0.5, 20.0),
        age_s=st.sampled_from([0.0, 0.0, 3.0]),
    )
    def arrive(self, takers: frozenset[Rank], priority: int, waits_s: float, age_s: float) -> None:
        """A request takes a place that is free, once those who wait had their turn; else it waits."""
        self.dispatch()
        one = Waiter(priority, self.now - age_s, self.now + waits_s, takers)
        if (rank := self.free_rank(one)) is not None:
            self.busy[rank] += 1
            return
        lowest = max(self.waiting, key=lambda waiter: waiter.order, default=None)
        try:
            displaced = self.room.enter(one)
        except RoomFullError:
            assert len(self.waiting) == 6
            assert lowest is not None
            assert lowest.priority >= priority
            return
        if len(self.waiting) == 6:
            assert lowest is not None
            assert displaced is lowest
            assert lowest.priority < priority
            self.waiting.remove(lowest)
        else:
            assert displaced is None
        self.waiting.append(one)

    @rule(rank=st.sampled_from(RANKS), is_awaited=st.booleans())
    def end_request(self, rank: Rank, is_awaited: bool) -> None:
        if self.busy[rank]:
            self.busy[rank] -= 1
            self.room.free(rank)
            if is_awaited:
                self.dispatch()

    @rule(rank=st.sampled_from(RANKS))
    def overtake(self, rank: Rank) -> None:
        """A repeated request takes a place before those who wait are tried."""
        if self.well[rank] and self.busy[rank] < self.capacity:
            self.busy[rank] += 1

    @rule(rank=st.sampled_from(RANKS), is_well=st.booleans())
    def mark(self, rank: Rank, is_well: bool) -> None:
        if self.well[rank] is not is_well:
            self.well[rank] = is_well
            self.room.free_any()
            self.dispatch()

    @rule(choice=st.integers(0, 9))
    def client_leaves(self, choice: int) -> None:
        if self.waiting:
            assert self.room.leave(self.waiting.pop(choice % len(self.waiting)))

    @rule(gone=st.sampled_from(RANKS), come=st.sampled_from(RANKS))
    def workers_change(self, gone: Rank, come: Rank) -> None:
        self.room.free_any()
        self.room.regroup(lambda one: one.takers - {gone} | {come})
        self.dispatch()

    @rule(seconds=st.floats(0.0, 10.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        expired = self.room.expire(self.now)
        assert set(map(id, expired)) == {
            id(one) for one in self.waiting if one.deadline <= self.now
        }
        self.waiting = [one for one in self.waiting if one.deadline > self.now]

    def free_rank(self, one: Waiter) -> Rank | None:
        free = [rank for rank in RANKS if self.well[rank] and self.busy[rank] < self.capacity]
        return next((rank for rank in free if rank in one.takers), None)

    def dispatch(self) -> None:
        """The room's order of trying against looking at everybody in order."""
        before, placed = dict(self.busy), []
        num_tried = 0
        while (one := self.room.next()) is not None:
            num_tried += 1
            if (rank := self.free_rank(one)) is None:
                self.room.stuck(one)
            else:
                self.busy[rank] += 1
                self.room.placed(one)
                placed.append(one)
        after, self.busy = self.busy, before
        expected = []
        for one in sorted(self.waiting, key=lambda waiter: waiter.order):
            if (rank := self.free_rank(one)) is not None:
                self.busy[rank] += 1
                expected.append(one)
        assert placed == expected
        assert self.busy == after
        num_lanes = len({one.takers for one in self.waiting})
        assert num_tried <= len(placed) + num_lanes
        self.waiting = [one for one in self.waiting if one not in placed]

    @invariant()
    def the_room_is_right(self) -> None:
        self.room.check()
        assert list(self.room) == sorted(self.waiting, key=lambda waiter: waiter.order)
        deadlines = [one.deadline for one in self.waiting]
        assert self.room.next_deadline() == min(deadlines, default=None)


TestRoomMachine = RoomMachine.TestCase
TestRoomMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
