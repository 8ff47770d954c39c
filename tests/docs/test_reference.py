"""The reference pages say what the code says."""

import re

import pytest

from router.errors import ErrorKind, FrontDoorError
from scoring.decision import Exclusion, Reason
from scripts.write_reference import REFERENCE, pages
from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return dict(pages())


def test_generated_pages_are_up_to_date(made: dict[str, str]) -> None:
    stale = [
        name
        for name, content in made.items()
        if (REFERENCE / name).read_text(encoding="utf-8") != content
    ]
    assert not stale, "run: python -m scripts.write_reference"


def test_errors_of_the_data_port_are_as_they_are_sent() -> None:
    page = (REFERENCE / "data-port.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d{3}) \|", page, re.M))
    assert rows
    for code, status in rows.items():
        assert FrontDoorError(ErrorKind(code), "").status == int(status)


@pytest.mark.parametrize("name", [*Reason, *Exclusion])
def test_every_reason_is_explained(name: str) -> None:
    page = (ROOT / "docs" / "how-to" / "read-a-decision.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page
