from pathlib import Path

import pytest

from benchmarks.peer_environment import PeerUnavailable, peer_environment, reason_of


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no reason given"),
        ("one\n\n  two \n", "two"),
        (
            "ERROR: first\nERROR: no matching distribution\nnotice: new pip\n",
            "ERROR: no matching distribution",
        ),
        ("x" * 500, "x" * 160),
    ],
    ids=["nothing", "last line", "last error", "cut short"],
)
def test_a_reason_is_one_short_line(output: str, reason: str) -> None:
    assert reason_of(output) == reason


def test_a_finished_environment_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "peer").mkdir()
    (tmp_path / "peer" / "installed-version").write_text("1.2.3")
    environment = peer_environment("peer", tmp_path)
    assert environment.version == "1.2.3"
    assert environment.program("peer") == str(tmp_path / "peer" / "bin" / "peer")


def test_a_cache_that_cannot_be_made_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PeerUnavailable, match="file"):
        peer_environment("peer", tmp_path / "file" / "cache")
