"""The guard: whatever the index does, a request gets an answer."""

import pytest

from indexer.match import Prompt, RankMatch
from indexer.trust import Trust
from scoring.prefix_index import GuardedIndex, IndexVerb
from tests.scoring.fleet import TruthIndex, rank, tokens_of

RANKS = [rank("a"), rank("b"), rank("c")]
PROMPT = Prompt(tokens_of(64), "m")


def test_answers_pass_through() -> None:
    index = TruthIndex()
    index.hold(rank("b"), PROMPT.tokens)
    found = GuardedIndex(index).match(PROMPT, RANKS, 0.0)
    assert found is not None
    assert [match.gpu_blocks for match in found] == [0, 4, 0]


@pytest.mark.parametrize("fault", [RuntimeError("no"), KeyError("w9"), RecursionError()])
def test_every_fault_is_counted_and_answered_with_nothing_known(fault: Exception) -> None:
    index = TruthIndex(fault=fault)
    guarded = GuardedIndex(index)
    match = RankMatch(RANKS[0], Trust.EXACT, 16)
    assert guarded.match(PROMPT, RANKS, 0.0) is None
    guarded.predict(RANKS[0], PROMPT, 0.0)
    guarded.observe(RANKS[0], PROMPT, 0.0)
    guarded.report(PROMPT, 3, match, 0.0, 1.0)
    assert guarded.trust(RANKS[0], 0.0) is Trust.NONE
    assert guarded.failures == dict.fromkeys(IndexVerb, 1)
    index.fault = None
    assert guarded.match(PROMPT, RANKS, 0.0) is not None


def test_a_fault_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    guarded = GuardedIndex(TruthIndex(fault=RuntimeError("no")))
    for _ in range(3):
        guarded.match(PROMPT, RANKS, 0.0)
    assert len(caplog.records) == 1


def test_what_is_no_fault_of_the_index_goes_through() -> None:
    index = TruthIndex()
    index.lookup_answer = lambda matches: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        GuardedIndex(index).match(PROMPT, RANKS, 0.0)


def test_ghosts_are_dropped_and_who_is_missing_holds_nothing() -> None:
    ghost = RankMatch(rank("ghost"), Trust.EXACT, 16, 9)
    index = TruthIndex()
    index.hold(rank("a"), PROMPT.tokens)
    index.hold(rank("c"), PROMPT.tokens)
    index.lookup_answer = lambda matches: [ghost, matches[2], matches[1]]
    found = GuardedIndex(index).match(PROMPT, RANKS, 0.0)
    assert found is not None
    assert [match.rank for match in found] == RANKS
    assert [match.gpu_blocks for match in found] == [0, 0, 4]
    index.lookup_answer = lambda matches: [*matches, ghost]
    found = GuardedIndex(index).match(PROMPT, RANKS, 0.0)
    assert found is not None
    assert [match.gpu_blocks for match in found] == [4, 0, 4]
