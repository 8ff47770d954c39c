"""What other requests may have brought to a rank."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.block_index import BlockIndex
from indexer.dispatches import Dispatch, Dispatches, Origin
from indexer.limits import IndexLimits
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_claims import RankClaims
from protocol import KeySpace, Tier, block_keys, pack_tokens

AT = 100.0
"""When the request in question is dispatched; its answer begins a second later."""
PROMPT = "abcd"
ALL = range(4)


def prompt_blocks(path: str, salt: str | None = None) -> PromptBlocks:
    """One block of two tokens a letter."""
    tokens = pack_tokens([ord(letter) + i for letter in path for i in range(2)])
    return PromptBlocks(KeySpace("m", salt=salt, block_size=2), block_keys(tokens, 2), tokens)


class Log:
    """Dispatches by path; every request that is not said to be under way has ended."""

    def __init__(self) -> None:
        self.claims = RankClaims(BlockIndex(), IndexLimits())
        self.dispatches = Dispatches(self.claims)

    def other(
        self,
        path: str,
        at: float,
        *,
        begins: float | None = None,
        ends: float | None = None,
        reused: int | None = None,
        salt: str | None = None,
    ) -> None:
        blocks = prompt_blocks(path, salt)
        self.dispatches.dispatch(blocks, at)
        if begins is not None:
            self.dispatches.begin(blocks, begins)
        if ends is not None:
            self.dispatches.end(blocks, reused, at, ends)

    def own(self) -> Dispatch:
        self.dispatches.dispatch(prompt_blocks(PROMPT), AT)
        return next(reversed(self.dispatches.alike(prompt_blocks(PROMPT))))

    def origin(self, own: Dispatch, open_blocks: Sequence[int] = ALL) -> Origin:
        own.begun_at, own.ended_at, own.reused = AT + 1.0, AT + 5.0, 4
        self.dispatches.check()
        return self.dispatches.origin(own, open_blocks)


@pytest.mark.parametrize(
    ("path", "begins", "ends", "reused", "nowhere", "uncertain"),
    [
        ("abcd", 99.0, 99.5, 0, "", ""),  # the same prompt, somebody else's
        ("abxy", 99.0, 99.5, 0, "cd", ""),
        ("abxy", 99.0, 99.5, 1, "acd", ""),  # it reused a itself
        ("abxy", 99.0, 99.5, 2, "abcd", ""),
        ("xbcd", 99.0, 99.5, 0, "abcd", ""),
        ("abcdef", 99.0, 99.5, 3, "abc", ""),
        ("ab", 99.0, 99.5, 2, "ab", ""),  # a turn before: its answer may be the rest
        ("ab", 80.0, 91.0, 0, "ab", ""),
        ("ab", 80.0, 89.0, 0, "abcd", ""),  # all of it was heard long ago
        ("abxy", 97.9, 99.5, 0, "abcd", ""),  # its prompt was heard, its answer is not ours
        ("abxy", 98.1, 99.5, 0, "cd", ""),
        ("abxy", 98.1, None, None, "cd", "ab"),  # it may report that it reused them
        ("abxy", None, None, None, "cd", "ab"),
        ("abxy", 98.1, 99.5, None, "cd", "ab"),  # it did not report
    ],
)
def test_origin(
    path: str,
    begins: float | None,
    ends: float | None,
    reused: int | None,
    nowhere: str,
    uncertain: str,
) -> None:
    log = Log()
    log.other(path, 79.0, begins=begins, ends=ends, reused=reused)
    origin = log.origin(log.own())
    assert "".join(PROMPT[i] for i in origin.nowhere) == nowhere
    assert "".join(PROMPT[i] for i in origin.uncertain) == uncertain


def test_requests_that_came_before_the_answer_began_count() -> None:
    log = Log()
    own = log.own()
    log.other("abxy", AT + 0.9, begins=AT + 2.0, ends=AT + 3.0, reused=0)
    assert log.origin(own).nowhere == [2, 3]
    log.other("abcx", AT + 1.1, begins=AT + 2.0, ends=AT + 3.0, reused=0)
    assert log.origin(own).nowhere == [2, 3]


def test_only_the_blocks_in_question_matter() -> None:
    log = Log()
    log.other("abxy", 99.0, begins=99.1, ends=99.5, reused=0)
    own = log.own()
    assert log.origin(own, (1, 3)).nowhere == [3]
    assert log.origin(own, (3,)).nowhere == [3]


def test_other_namespaces_bring_nothing() -> None:
    log = Log()
    log.other("abcd", 99.0, begins=99.1, ends=99.5, reused=0, salt="s")
    assert log.origin(log.own()).nowhere == [0, 1, 2, 3]


def test_who_is_silent_for_long_has_been_given_up() -> None:
    log = Log()
    log.other("abcd", 39.0)
    assert log.origin(log.own()).nowhere == [0, 1, 2, 3]
    log.other("abcd", 41.0)
    assert log.origin(log.own()).uncertain == [0, 1, 2, 3]


def test_what_was_known_at_dispatch() -> None:
    log = Log()
    refs, _ = log.claims.look(prompt_blocks("abcdef"))
    log.claims.announce(Tier.GPU, refs[:2])
    log.claims.announce(Tier.HOST, refs[4:5])
    blocks = prompt_blocks("abcdef")
    log.dispatches.dispatch(blocks, 1.0)
    (first,) = log.dispatches.alike(blocks)
    assert list(first.unknown) == [2, 3, 5]
    log.dispatches.dispatch(blocks, 2.0)  # predicted by now
    assert list(log.dispatches.alike(blocks)[1].unknown) == []


def test_requests_alike_begin_in_order_and_end_by_their_time() -> None:
    log = Log()
    blocks = prompt_blocks("ab")
    for at in (1.0, 2.0):
        log.dispatches.dispatch(blocks, at)
    log.dispatches.begin(blocks, 3.0)
    first, second = log.dispatches.alike(blocks)
    assert (first.begun_at, second.begun_at) == (3.0, None)
    assert log.dispatches.end(blocks, 1, 2.0, 4.0) is second
    assert (second.begun_at, second.ended_at, second.reused) == (4.0, 4.0, 1)
    assert log.dispatches.end(prompt_blocks("xy"), 1, 2.0, 4.0) is None


def test_the_memory_is_bounded_and_what_it_forgot_explains_everything() -> None:
    log = Log()
    for i in range(1_024):
        log.other(f"a{chr(i + 1_000)}", 30.0)
    assert len(log.dispatches) == 1_024
    own = log.own()  # one is forgotten that may be under way until 90
    assert len(log.dispatches) == 1_024
    assert log.origin(own).nowhere == [0, 1, 2, 3]
    earlier = Dispatch(own.key_space, own.keys, ALL, dispatched_at=89.0, begun_at=95.0)
    assert log.dispatches.origin(earlier, ALL) == Origin((), ())
    log.dispatches.dispatch(prompt_blocks("long" * 65_536), 200.0)
    log.dispatches.check()
    assert len(log.dispatches) == 1
    log.dispatches.clear()
    assert len(log.dispatches) == 0


@given(st.lists(st.integers(0, 6), max_size=12).map(sorted), st.lists(st.integers(0, 6)), st.data())
def test_of_requests_alike_the_nearest_in_time_ends(
    times: list[int], ends: list[int], data: st.DataObject
) -> None:
    log, blocks = Log(), prompt_blocks("ab")
    for at in times:
        log.dispatches.dispatch(blocks, float(at))
    alike = log.dispatches.alike(blocks)
    for at in ends:
        if data.draw(st.booleans()):
            waiting = [dispatch for dispatch in alike if dispatch.begun_at is None]
            log.dispatches.begin(blocks, 9.0)
            assert all(dispatch.begun_at is not None for dispatch in waiting[:1])
            assert all(dispatch.begun_at is None for dispatch in waiting[1:])
        ended = log.dispatches.end(blocks, 0, at + 0.25, 9.0)
        nearest = min(alike, key=lambda one: abs(one.dispatched_at - at - 0.25), default=None)
        assert ended is nearest
        log.dispatches.check()


def test_requests_alike_are_forgotten_oldest_first() -> None:
    log, blocks = Log(), prompt_blocks("ab")
    for at in range(1_500):
        log.dispatches.dispatch(blocks, float(at))
        if at % 2:
            log.dispatches.begin(blocks, float(at))
    log.dispatches.check()
    assert log.dispatches.alike(blocks)[0].dispatched_at == 476.0
    log.dispatches.begin(blocks, 2_000.0)
    begun = [one for one in log.dispatches.alike(blocks) if one.begun_at == 2_000.0]
    assert [one.dispatched_at for one in begun] == [750.0]
