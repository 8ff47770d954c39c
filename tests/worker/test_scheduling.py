"""SGLang's rules: what an admission leaves to the answers of others, and who yields."""

import pytest

from worker.lineup import Lineup
from worker.request import EngineRequest, Sequence
from worker.scheduling import SglangScheduling


def sequence(name: str, *, prompt: int = 8, generated: int = 0, length: int = 40) -> Sequence:
    """A request in the middle of its answer."""
    request = EngineRequest(name, (1,) * prompt, length)
    return Sequence(request, 0.0, [1] * (prompt + generated), iter(()))


def lineup(*running: Sequence) -> Lineup:
    """These run, in the order of their admission."""
    made = Lineup()
    made.running = {one.id: one for one in running}
    return made


@pytest.mark.parametrize(
    ("running", "yields"),
    [
        ([sequence("a", generated=5), sequence("b", generated=4)], "b"),
        ([sequence("a", generated=4), sequence("b", generated=5)], "a"),
        ([sequence("a", prompt=20), sequence("b", prompt=8)], "a"),
        ([sequence("a"), sequence("b")], "b"),
        ([sequence("a")], "a"),
    ],
)
def test_victim(running: list[Sequence], yields: str) -> None:
    assert SglangScheduling(4, 40).victim(lineup(*running)).id == yields


def test_share_of_the_answers_to_come() -> None:
    rules = SglangScheduling(4, 40)
    running = lineup(sequence("a", generated=10), sequence("b", length=10_000))
    assert rules.headroom(running, ()) == int(0.7 * (30 + 4_096))
    assert rules.headroom(lineup(), [sequence("c")]) == 40
    for _ in range(1_000):
        rules.decoded()
    assert rules.headroom(lineup(sequence("a", length=1_000)), ()) == 98
    rules.idle()
    assert rules.headroom(lineup(sequence("a", length=1_000)), ()) == 700


def test_share_after_a_retraction_lasts_for_some_steps() -> None:
    rules = SglangScheduling(4, 40)
    rules.preempted([sequence("a", generated=10, length=100)])
    assert rules.headroom(lineup(sequence("b", length=1_000)), ()) == 300
    rules.preempted([])
    assert rules.headroom(lineup(sequence("b", length=1_000)), ()) == 300
    rules.preempted([sequence("a", generated=39)])
    assert rules.headroom(lineup(sequence("b", length=1_000)), ()) == 1_000
