"""The log of broken answers is bounded, and leaves none uncounted."""

import pytest

from protocol import WorkerId
from router.broken_answers import BrokenAnswers


def test_one_line_a_second_which_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    told = BrokenAnswers()
    for now in (5.0, 5.2, 5.9, 6.0, 9.0):
        told.broke_off(f"r{now}", WorkerId("w"), "reset:\n  by peer", now)
    assert [record.getMessage() for record in caplog.records] == [
        "the answer to request r5.0 broke off at worker w: reset: by peer",
        "the answer to request r6.0 broke off at worker w: reset: by peer; 2 more since the last such line",
        "the answer to request r9.0 broke off at worker w: reset: by peer",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
