import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measurement import (
    bounded,
    exit_beyond,
    measured,
    not_available,
    show,
    write_json,
)


def test_the_value_is_the_median_of_the_runs() -> None:
    assert measured("x", "ms", [3.0, 1.0, 2.0]).value == 2.0


def test_json_names_the_peer_where_one_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = measured("bare_ms", "ms", [2.0])
    rows = [peer, measured("ours_ms", "ms", [3.0], peer)]
    write_json(str(tmp_path / "rows.json"), rows)
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written == [
        {"name": "bare_ms", "value": 2.0, "unit": "ms", "runs": [2.0]},
        {"name": "ours_ms", "value": 3.0, "unit": "ms", "runs": [3.0]}
        | {"peer": "bare_ms", "ratio": 1.5},
    ]
    write_json("-", rows)
    assert json.loads(capsys.readouterr().out) == written


def test_a_value_beyond_its_bound_ends_with_1() -> None:
    exit_beyond([measured("x", "ms", [3.0]), bounded("growth", "×", 1.2, 1.2)])
    with pytest.raises(SystemExit, match=r"growth is 1\.300, at most 1\.200"):
        exit_beyond([bounded("growth", "×", 1.3, 1.2)])
    assert bounded("growth", "×", 1.3, 1.2).to_json()["most"] == 1.2


def test_each_figure_is_one_line_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    peer = measured("flat_match_1000000_pages", "operations/s", [13_193.092])
    show("x", [peer, measured("match_1000000_pages", "operations/s", [33_507.016], peer)])
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if " match_1000000_pages" in line]
    assert "33,507.016" in line
    assert "2.54 × flat_match_1000000_pages" in line


def test_a_row_without_a_figure_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = not_available("peer_ms", "ms", "no wheel")
    write_json(str(tmp_path / "rows.json"), [row])
    (written,) = json.loads((tmp_path / "rows.json").read_text())
    assert (written["value"], written["runs"]) == (None, [])
    assert written["not_available"] == "no wheel"
    show("x", [row])
    assert "not available: no wheel" in capsys.readouterr().err
    exit_beyond([row])


@pytest.mark.parametrize(("value", "told"), [(1.0, "target 1.000 met"), (1.5, "missed")])
def test_a_missed_target_is_told_and_no_fault(value: float, told: str) -> None:
    row = replace(measured("x", "ms", [value]), target=1.0, more_ratios=(("peer", 2.0),))
    assert row.remark.startswith("2.00 × peer, target 1.000")
    assert row.remark.endswith(told)
    fields = row.to_json()
    assert (fields["target"], fields["met"]) == (1.0, value <= 1.0)
    assert fields["more_ratios"] == {"peer": 2.0}
    exit_beyond([row])
