"""The page on logs and traces tells every field, outcome and span that there is."""

import json
import re

import pytest

from router.access_line import fields
from router.request_record import RequestEnd
from tests.docs.pages import ROOT, blocks
from tests.router.records import record

PAGE = ROOT / "docs" / "how-to" / "logs-and-traces.md"


def test_the_sample_line_has_the_fields_of_one() -> None:
    (sample,) = [json.loads(one.text) for one in blocks("json") if one.page == PAGE]
    told = fields(record())
    assert list(sample) == list(told)
    for name, value in told.items():
        assert value is None or isinstance(sample[name], type(value)), name


@pytest.mark.parametrize("end", RequestEnd)
def test_every_outcome_is_explained(end: RequestEnd) -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert any(f"`{end}`" in row for row in rows)
