"""Names and exclusions: who serves a request."""

import pytest

from protocol import WorkerId
from scoring.worker_table import RankRow, Resolution, TooManyWorkersError, WorkerTable
from tests.scoring.fleet import spec


def table_of(**workers: dict[str, object]) -> WorkerTable:
    table = WorkerTable()
    for name, changes in workers.items():
        table.add(spec(name, **changes))
    table.check()
    return table


def serving(found: Resolution) -> str:
    return "".join(str(row.rank.worker) for row in found.rows)


FLEET: dict[str, dict[str, object]] = {
    "a": {"model": "m1", "aliases": ("small", "prod"), "adapters": ("sql",)},
    "b": {"model": "m1", "aliases": ("small",)},
    "c": {"model": "m2", "aliases": ("large", "prod", "m1"), "adapters": ("poem", "small")},
}


@pytest.mark.parametrize(
    ("name", "model", "adapter", "expected"),
    [
        ("m1", "m1", None, "ab"),  # a model's own name comes before c's alias
        ("m2", "m2", None, "c"),
        ("small", "m1", None, "ab"),  # an alias comes before an adapter
        ("large", "m2", None, "c"),
        ("prod", "m1", None, "a"),  # two meanings: that of the first worker
        ("sql", "m1", "sql", "a"),
        ("poem", "m2", "poem", "c"),
        ("nobody", None, None, ""),
        (None, None, None, ""),  # two models: no name says too little
    ],
)
def test_resolution(
    name: str | None, model: str | None, adapter: str | None, expected: str
) -> None:
    found = table_of(**FLEET).resolve(name)
    assert (found.model, found.adapter, serving(found)) == (model, adapter, expected)
    assert len(found.rows) + len(found.others) == 3
    assert found.num_others == len(found.others)


def test_no_name_means_all_where_there_is_one_model() -> None:
    found = table_of(a={}, b={"aliases": ("x",)}).resolve(None)
    assert (found.model, serving(found)) == ("m", "ab")


def test_one_model_serves_no_other_name() -> None:
    found = table_of(a={}).resolve("other")
    assert (found.model, serving(found), len(found.others)) == (None, "", 1)


def test_an_adapter_of_its_own_field_goes_to_who_lists_it_or_to_all_if_none_does() -> None:
    table = table_of(a={"adapters": ("sql",)}, b={})
    assert serving(table.resolve("m", "sql")) == "a"
    assert serving(table.resolve("m", "other")) == "ab"
    assert table.resolve("m", "other").adapter == "other"
    assert table.resolve("sql", "sql").rows == table.resolve("sql").rows
    narrowed = table.resolve("m", "sql")
    assert [row.rank.worker for row in narrowed.others] == ["b"]
    assert narrowed.num_others == 1


def test_served_names_and_models() -> None:
    table = table_of(**FLEET)
    assert table.models() == ["m1", "m2"]
    assert table.served_names() == ["large", "m1", "m2", "poem", "prod", "small", "sql"]


def test_an_update_keeps_load_and_marks_of_the_ranks_that_stay() -> None:
    table = WorkerTable()
    table.add(spec("a", num_ranks=2))
    entry = table.entry(WorkerId("a"))
    assert entry is not None
    first, second = entry.rows
    entry.is_draining = True
    entry.settle()
    first.book.open(1, 1)
    table.add(spec("a", num_ranks=1, aliases=("x",)))
    assert entry.rows == (first,)
    assert entry.is_draining
    assert table.has(first)
    assert not table.has(second)
    assert serving(table.resolve("x")) == "a"
    table.check()


def test_a_worker_that_returns_is_another_one() -> None:
    table = table_of(a={})
    row: RankRow = table.rows()[0]
    table.remove(WorkerId("a"))
    assert table.remove(WorkerId("a")) is None
    assert not table.has(row)
    assert table.resolve("m").model is None
    table.add(spec("a"))
    assert not table.has(row)


def test_the_table_is_bounded_and_takes_updates_when_full() -> None:
    table = WorkerTable(max_workers=1)
    table.add(spec("a"))
    with pytest.raises(TooManyWorkersError):
        table.add(spec("b"))
    table.add(spec("a", num_ranks=4))
    assert len(table.rows()) == 4
    table.check()
