"""The bucket of tokens: never more than its rate and burst allow, and as much as they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.token_bucket import TokenBucket


def test_a_burst_then_the_rate() -> None:
    bucket = TokenBucket(rate=2.0, burst=3.0, now=10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(10.4) == pytest.approx(0.1)
    assert bucket.take(10.5) == 0.0
    assert bucket.take(10.5) == 0.5
    assert [bucket.take(100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.floats(0, 10), min_size=1, max_size=100),
)
def test_in_any_time_no_more_than_burst_and_rate(
    rate: float, burst: int, pauses: list[float]
) -> None:
    bucket, now, num_taken = TokenBucket(rate, burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = bucket.take(now)
        bucket.check()
        num_taken += wait == 0.0
        assert num_taken <= burst + rate * now + 1e-6
        if wait:
            assert wait <= 1 / rate
            now += wait * (1 + 1e-9)
            assert bucket.take(now) < 1e-6 / rate
            num_taken += 1
