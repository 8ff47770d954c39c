"""The log of decisions: bounded, and found by id."""

from scoring.decision import Decision, Reason
from scoring.decision_log import DecisionLog


def decision(request_id: str, time: float = 0.0) -> Decision:
    return Decision(request_id, time, "m", "chat", "cost", 1, None, Reason.NO_CANDIDATE, ())


def test_the_oldest_leave_and_cannot_be_found() -> None:
    log = DecisionLog(3)
    for number in range(5):
        log.append(decision(f"r{number}"))
        log.check()
    assert len(log) == 3
    assert [one.request_id for one in log.newest(10)] == ["r4", "r3", "r2"]
    assert log.newest(1)[0].request_id == "r4"
    assert log.newest(0) == log.newest(-1) == []
    assert log.find("r1") is None
    assert log.find("r2") is not None


def test_an_id_finds_its_newest_decision_even_after_the_first_has_left() -> None:
    log = DecisionLog(2)
    for request_id, time in [("r", 1.0), ("r", 2.0), ("s", 3.0)]:
        log.append(decision(request_id, time))
        log.check()
    found = log.find("r")
    assert found is not None
    assert found.time == 2.0
    log.append(decision("t"))
    assert log.find("r") is None
    log.check()
