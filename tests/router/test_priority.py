"""What clients ask for in header fields, within what they may."""

import pytest

from router.headers import RawHeader
from router.priority import PriorityRight, priority_of, wait_bound_s


@pytest.mark.parametrize(
    ("value", "right", "expected"),
    [
        (None, PriorityRight(), 0),
        (None, PriorityRight(-3, 5), -3),
        (b"4", PriorityRight(-3, 5), 4),
        (b"5", PriorityRight(-3, 5), 5),
        (b"6", PriorityRight(-3, 5), 5),
        (b"+2", PriorityRight(0, 5), 2),
        (b"-7", PriorityRight(0, 5), -7),
        (b"-101", PriorityRight(), -100),
        (b"1", PriorityRight(), 0),
        (b"", PriorityRight(2, 5), 2),
        (b"high", PriorityRight(2, 5), 2),
        (b"3.5", PriorityRight(2, 5), 2),
        (b"1_0", PriorityRight(2, 50), 2),
        ("٣".encode(), PriorityRight(2, 5), 2),
        (b"9" * 400, PriorityRight(2, 5), 2),
    ],
)
def test_a_priority_is_the_clients_up_to_what_it_may(
    value: bytes | None, right: PriorityRight, expected: int
) -> None:
    headers: list[RawHeader] = [(b"host", b"x")]
    if value is not None:
        headers.append((b"x-kvroute-priority", value))
    assert priority_of(headers, right) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 30.0),
        (b"0", 0.0),
        (b"2.5", 2.5),
        (b"7", 7.0),
        (b"30", 30.0),
        (b"31", 30.0),
        (b"-1", 30.0),
        (b"", 30.0),
        (b"soon", 30.0),
        (b"nan", 30.0),
        (b"inf", 30.0),
        (b"1e3", 30.0),
        (b"9" * 400, 30.0),
    ],
)
def test_a_wait_is_as_short_as_the_client_asks_and_never_longer_than_may_be(
    value: bytes | None, expected: float
) -> None:
    headers = [] if value is None else [(b"x-kvroute-queue-timeout", value)]
    assert wait_bound_s(headers, 30.0) == expected
