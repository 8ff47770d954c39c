"""What the simulations of a session have met, printed at its end."""

import pytest

from tests.simulation.tally import Tally, rows

TALLY = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Tally:
    """Counts of all simulated fleets of the session."""
    return request.config.stash.setdefault(TALLY, Tally())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tally = config.stash.get(TALLY, None)
    if tally:
        terminalreporter.section("simulated fleets")
        for row in rows(tally):
            terminalreporter.write_line(row)
