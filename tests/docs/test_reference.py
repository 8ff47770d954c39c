"""The reference pages say what the code says."""

import re

import pytest

from protocol import DEFAULT_ENGINE_MODEL, DEFAULT_PREFETCH_THRESHOLD, Tier, tier_of
from router.errors import ErrorKind, FrontDoorError
from scoring.cost import ANSWER_TOKENS
from scoring.decision import Exclusion, Reason
from scoring.speeds import MIN_WORK_TOKENS
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


def test_the_cost_is_told_with_the_numbers_that_it_has() -> None:
    page = (ROOT / "docs" / "explanation" / "cost.md").read_text(encoding="utf-8")
    model = DEFAULT_ENGINE_MODEL
    rates = (model.prefill_tokens_per_s, model.load_back_tokens_per_s, model.fetch_tokens_per_s)
    assert all(f"| {rate:,.0f} tokens/s |" in page for rate in rates)
    assert f"| {model.attention_doubling_tokens:,.0f} tokens |" in page
    assert f"| {model.decode_ms_per_request} ms " in page
    assert f"they are {DEFAULT_PREFETCH_THRESHOLD} or more" in page
    assert f"the first tokens of the answer, {ANSWER_TOKENS} at most" in page
    assert f"{MIN_WORK_TOKENS:,} tokens or more" in page


def test_media_are_told_as_they_map() -> None:
    page = (ROOT / "docs" / "explanation" / "trust-and-evidence.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (GPU|HOST|STORAGE) \| (.*) \|$", page, re.M)
    assert [name for name, _ in rows] == [tier.name for tier in Tier]
    for name, media in rows:
        assert {tier_of(medium) for medium in re.findall(r"`(\w+)`", media)} == {Tier[name]}
