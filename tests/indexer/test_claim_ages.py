"""Ages of tables, by samples."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.claim_ages import ClaimAges, ClaimClock


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 20)), max_size=200))
def test_a_grain_of_one_tells_which_table_has_the_oldest_entry(
    changes: list[tuple[bool, int, int]],
) -> None:
    clock = ClaimClock()
    tables: list[dict[int | bytes, int]] = [{}, {}]
    ages = [ClaimAges(clock, 1), ClaimAges(clock, 1)]
    for time, (is_store, which, key) in enumerate(changes):
        if is_store:
            tables[which].setdefault(key, time)
        else:
            tables[which].pop(key, None)
        ages[which].note(tables[which])
        for one, table in zip(ages, tables, strict=True):
            one.check(table)
        assert clock.num_held == len(tables[0]) + len(tables[1])
        stamps = [one.oldest(table) for one, table in zip(ages, tables, strict=True)]
        times = [min(table.values(), default=None) for table in tables]
        assert [stamp is None for stamp in stamps] == [at is None for at in times]
        if None not in times:
            assert (stamps[0] < stamps[1]) == (times[0] < times[1])  # type: ignore[operator]


def test_samples_are_few() -> None:
    clock = ClaimClock()
    ages = ClaimAges(clock, 10)
    table: dict[int | bytes, None] = {}
    for key in range(100_000):
        table[key] = None
        if key >= 50:
            del table[key - 50]
            ages.note(table)
        ages.note(table)
        assert len(ages._samples) <= 2 * 50 // 10 + 65
    ages.check(table)
    assert clock.num_held == 50


def test_an_entry_that_comes_again_is_young() -> None:
    clock = ClaimClock()
    ages = ClaimAges(clock, 1)
    table: dict[int | bytes, None] = {}
    for key in (1, 2, 3):
        table[key] = None
        ages.note(table)
    del table[2]
    ages.note(table)
    table[2] = None
    ages.note(table)
    ages.check(table)
    del table[1]
    ages.note(table)
    assert ages.oldest(table) == 3
