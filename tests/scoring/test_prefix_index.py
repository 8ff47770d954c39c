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
    match = RankMatch(Trust.EXACT, 16)
    assert guarded.match(PROMPT, RANKS, 0.0) is None
    guarded.predict(RANKS[0], PROMPT, 0.0)
    guarded.withdraw(RANKS[0], PROMPT, [])
    guarded.observe(RANKS[0], PROMPT, 0.0)
    guarded.report(RANKS[0], PROMPT, 3, match, 0.0, 1.0)
    assert guarded.trust(RANKS[0], 0.0) is Trust.NONE
    assert guarded.failures == dict.fromkeys(IndexVerb, 1)
    index.fault = None
    assert guarded.match(PROMPT, RANKS, 0.0) is not None


def test_each_kind_of_fault_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    index = TruthIndex()
    guarded = GuardedIndex(index)
    for fault in (RuntimeError("no"), RuntimeError("again"), KeyError("w9")):
        index.fault = fault
        guarded.match(PROMPT, RANKS, 0.0)
        guarded.predict(RANKS[0], PROMPT, 0.0)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "index failed to match",
        "index failed to predict",
    ] * 2


def test_what_is_no_fault_of_the_index_goes_through() -> None:
    index = TruthIndex()
    index.lookup_answer = lambda matches: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        GuardedIndex(index).match(PROMPT, RANKS, 0.0)


@pytest.mark.parametrize("places", [(0, 1), (0, 1, 2, 3), ()])
def test_an_answer_of_another_length_is_no_answer(places: tuple[int, ...]) -> None:
    ghost = RankMatch(Trust.EXACT, 16, 9)
    index = TruthIndex()
    index.lookup_answer = lambda matches: [[*matches, ghost][place] for place in places]
    guarded = GuardedIndex(index)
    assert guarded.match(PROMPT, RANKS, 0.0) is None
    assert guarded.failures[IndexVerb.MATCH] == 1
