"""Results go where they were asked for, and the question does not touch what is there."""

from pathlib import Path

import pytest
import typer

from kvroute.output import console_beside, write_json
from tests.kvroute.test_cli import invoke

REFUSED_LATER = ("replay", "/nowhere.jsonl", "--url", "http://127.0.0.1:1", "--json")


def test_a_file_is_left_as_it_was_until_there_is_a_result(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("kept")
    for path in (old, new):
        code, output = invoke(*REFUSED_LATER, str(path))
        assert code == 2
        assert "TRACE" in output
    assert old.read_text() == "kept"
    assert not new.exists()


def test_a_file_that_is_gone_when_the_result_is_there_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as raised:
        write_json(str(tmp_path / "gone" / "out.json"), {})
    assert raised.value.exit_code == 1
    assert "--json" in capsys.readouterr().err


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("", 140), ("many", 140)])
def test_what_is_no_terminal_is_as_wide_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console_beside(None).width == width
