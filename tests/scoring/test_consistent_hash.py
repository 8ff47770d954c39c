"""Consistent hashing: what moves when ranks come and go, and when a rank is full."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import TokenBytes
from scoring.brain import PlanRequest
from scoring.consistent_hash import FREE_REQUESTS, PREFIX_TOKENS, ConsistentHash, most_requests
from scoring.decision import Reason
from scoring.ranking import Ranking
from tests.scoring.fleet import joined, request, tokens_of
from tests.scoring.weighed import option, row, weighed

fleets = st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=12, unique=True)
sessions = st.text(min_size=1, max_size=20)


def asked(asked: PlanRequest, fleet: list[str], in_flight: list[int] | None = None) -> Ranking:
    busy = in_flight or [0] * len(fleet)
    options = [option(row(name), in_flight=one) for name, one in zip(fleet, busy, strict=True)]
    return ConsistentHash().order(weighed(options, asked), Random(0), 0.0)


def order(session: str, fleet: list[str]) -> list[str]:
    ranking = asked(request(None, session=session), fleet)
    assert ranking.reason is Reason.HASHED
    return [one.row.rank.worker for one in ranking.options]


@given(sessions, fleets)
def test_a_rank_that_goes_moves_its_own_keys_and_nothing_else(
    session: str, fleet: list[str]
) -> None:
    before = order(session, fleet)
    for gone in fleet:
        after = order(session, [name for name in reversed(fleet) if name != gone])
        assert after == [name for name in before if name != gone]


def test_a_rank_that_comes_takes_its_share_from_all_alike() -> None:
    fleet = [f"w{number}" for number in range(5)]
    keys = [f"session {number}" for number in range(1_200)]
    before = {key: order(key, fleet[:4])[0] for key in keys}
    after = {key: order(key, fleet)[0] for key in keys}
    assert all(abs(count - 300) < 60 for count in Counter(before.values()).values())
    moved = {key for key in keys if before[key] != after[key]}
    assert {after[key] for key in moved} == {"w4"}
    assert abs(len(moved) - 240) < 60
    assert all(abs(count - 60) < 30 for count in Counter(before[key] for key in moved).values())


@given(sessions, st.lists(st.integers(0, 60), min_size=2, max_size=8))
def test_nobody_goes_beyond_the_bound(session: str, busy: list[int]) -> None:
    fleet = [f"w{number}" for number in range(len(busy))]
    owner = order(session, fleet)[0]
    load = dict(zip(fleet, busy, strict=True))
    ranking = asked(request(None, session=session), fleet, busy)
    bound = most_requests(ranking.options)
    chosen = ranking.options[0].row.rank.worker
    assert sorted(one.row.rank.worker for one in ranking.options) == fleet
    assert load[chosen] < bound
    assert bound <= max(FREE_REQUESTS, 1.25 * (sum(busy) + 1) / len(busy) + 1)
    assert (chosen == owner) is (load[owner] < bound) is (ranking.reason is Reason.HASHED)


def test_an_owner_that_is_full_passes_the_request_on() -> None:
    first, second, _ = order("s", ["a", "b", "c"])
    busy = [20 if name == first else 1 for name in "abc"]
    ranking = asked(request(None, session="s"), ["a", "b", "c"], busy)
    assert ranking.reason is Reason.HASHED_IS_FULL
    assert [one.row.rank.worker for one in ranking.options][:2] == [second, first]


HEAD = tokens_of(PREFIX_TOKENS)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (request(joined(HEAD, tokens_of(5, 1))), request(joined(HEAD, tokens_of(9, 2))), True),
        (request(HEAD), request(TokenBytes(HEAD[:-4])), False),
        (request(HEAD, session="s"), request(tokens_of(9, 3), session="s"), True),
        (request(HEAD, session="s"), request(HEAD, session="t"), False),
        (request(None, session="\ud800"), request(None, session="\ud801"), False),
    ],
)
def test_what_belongs_together(one: PlanRequest, other: PlanRequest, is_same: bool) -> None:
    fleet = [f"w{number}" for number in range(40)]
    first, second = (asked(each, fleet).options[0].row.rank for each in (one, other))
    assert (first == second) is is_same


def test_without_a_key_load_decides() -> None:
    options = [option(row("a"), load_ms=2.0), option(row("b"), load_ms=1.0)]
    for nothing in (None, TokenBytes(b"")):
        ranking = ConsistentHash().order(weighed(options, request(nothing)), Random(0), 0.0)
        assert (ranking.options[0].row.rank.worker, ranking.reason) == ("b", Reason.LOAD_ONLY)
