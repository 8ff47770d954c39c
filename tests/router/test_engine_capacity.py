"""How many requests a rank runs at once, as SGLang says it, in whatever shape."""

import pytest

from router.answer_fields import AnswerFields
from router.engine_capacity import sglang_max_running

EFFECTIVE = "effective_max_running_requests_per_dp"


@pytest.mark.parametrize(
    ("info", "num_ranks", "expected", "num_faults"),
    [
        ({}, 1, None, 0),
        ({"max_running_requests": None}, 1, None, 0),
        ({"max_running_requests": 48}, 1, 48, 0),
        ({"max_running_requests": 48}, 4, 12, 0),
        ({"max_running_requests": 2}, 4, 1, 0),
        ({"max_running_requests": "48"}, 1, None, 0),
        ({"max_running_requests": True}, 1, None, 0),
        ({"max_running_requests": 0}, 1, None, 1),
        ({"max_running_requests": 10**9}, 1, None, 1),
        ({"internal_states": [{EFFECTIVE: 30}], "max_running_requests": 48}, 1, 30, 0),
        ({"internal_states": [{EFFECTIVE: 30}, {EFFECTIVE: 31}]}, 2, 30, 0),
        ({"internal_states": [{EFFECTIVE: -1}], "max_running_requests": 48}, 1, 48, 1),
        ({"internal_states": [], "max_running_requests": 48}, 1, 48, 0),
        ({"internal_states": "x", "max_running_requests": 48}, 1, 48, 0),
        ({"internal_states": [None], "max_running_requests": 48}, 1, 48, 0),
    ],
)
def test_the_scheduler_knows_best_then_the_flag_shared_by_the_ranks(
    info: dict[str, object], num_ranks: int, expected: int | None, num_faults: int
) -> None:
    read = AnswerFields()
    assert sglang_max_running(info, num_ranks, read) == expected
    assert read.num_faults == num_faults
