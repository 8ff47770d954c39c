"""Parts that are told the time."""

from router.ticker import Ticker


def test_a_part_that_fails_holds_up_no_other() -> None:
    told: list[float] = []

    def broken(now: float) -> None:
        raise ZeroDivisionError

    ticker = Ticker({"broken": broken, "sound": told.append}, clock=lambda: 7.0)
    ticker.tick()
    ticker.tick()
    assert told == [7.0, 7.0]
    assert ticker.failures == {"broken": 2}
