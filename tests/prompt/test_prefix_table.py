"""Beginnings that are found again, and what goes at the bounds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from prompt.prefix_table import CHUNK, PrefixTable, TableLimits, chunk_names, common_length

ROOMY = TableLimits(max_bytes=1 << 30, max_entries=1000)


def data_of(*chunks: int, rest: int = 0) -> bytes:
    """Whole chunks, each of one byte over and over, and ``rest`` bytes more."""
    return b"".join(bytes([chunk]) * CHUNK for chunk in chunks) + b"." * rest


class Table:
    """A table, asked and filled in one step each."""

    def __init__(self, limits: TableLimits = ROOMY) -> None:
        self.table: PrefixTable[bytes, str] = PrefixTable(limits)

    def put(self, data: bytes, value: str, space: int = 0) -> None:
        self.table.put(space, data, chunk_names(space, data), value, len(value))
        self.table.check()

    def find(self, data: bytes, space: int = 0) -> tuple[str, int] | None:
        found = self.table.find(space, data, chunk_names(space, data))
        return None if found is None else (found.value, found.num_common)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (data_of(1, 2, 3), ("123", 3 * CHUNK)),
        (data_of(1, 2, 3, 4), ("123", 3 * CHUNK)),
        (data_of(1, 2, rest=7), ("123", 2 * CHUNK)),
        (data_of(1, 2, 9), ("123", 2 * CHUNK)),
        (data_of(1, 5, 3), ("15", 2 * CHUNK)),
        (data_of(1, rest=9), ("15", CHUNK)),  # the newest with this beginning
        (data_of(2, 3), None),
        (data_of(rest=CHUNK - 1), None),
        (b"", None),
    ],
)
def test_the_longest_beginning_is_found(asked: bytes, expected: tuple[str, int] | None) -> None:
    table = Table()
    table.put(data_of(1, 2, 3), "123")
    table.put(data_of(1, 5), "15")
    assert table.find(asked) == expected


def test_what_is_shared_is_told_to_the_byte() -> None:
    table = Table()
    table.put(data_of(1, 2, rest=100), "a")
    assert table.find(data_of(1, 2, rest=60) + b"!" * 100) == ("a", 2 * CHUNK + 60)


def test_spaces_have_nothing_to_do_with_each_other() -> None:
    table = Table()
    table.put(data_of(1), "a", space=1)
    assert table.find(data_of(1), space=2) is None
    names = chunk_names(1, data_of(1))  # as if names of two spaces collided
    assert table.table.find(2, data_of(1), names) is None


def test_a_collision_of_names_finds_nothing_false() -> None:
    table = Table()
    names = chunk_names(0, data_of(1))
    table.table.put(0, data_of(7), names, "other", 1)
    assert table.find(data_of(1)) is None


def test_growing_data_takes_the_room_of_its_newest_step() -> None:
    table = Table()
    for length in range(1, 30):
        table.put(data_of(*range(length)), str(length))
        assert len(table.table) == 1
    assert table.find(data_of(*range(29), 77)) == ("29", 29 * CHUNK)


def test_what_was_asked_for_last_stays() -> None:
    table = Table(TableLimits(max_bytes=1 << 30, max_entries=2))
    table.put(data_of(1), "1")
    table.put(data_of(2), "2")
    assert table.find(data_of(1)) is not None
    table.put(data_of(3), "3")
    assert [table.find(data_of(n)) is not None for n in (1, 2, 3)] == [True, False, True]
    assert (table.table.num_evicted, table.table.num_hits, table.table.num_misses) == (1, 3, 1)


def test_what_is_larger_than_all_the_room_is_not_kept() -> None:
    table = Table(TableLimits(max_bytes=3 * CHUNK, max_entries=9))
    table.put(data_of(1), "1")
    table.put(data_of(1, 2, 3), "123")
    assert table.find(data_of(1, 2, 3)) == ("1", CHUNK)
    assert table.table.num_oversized == 1


@given(st.binary(max_size=50), st.binary(max_size=50), st.binary(max_size=50))
def test_common_length(beginning: bytes, one: bytes, other: bytes) -> None:
    length = common_length(beginning + one, beginning + other)
    assert length >= len(beginning)
    assert (beginning + one)[:length] == (beginning + other)[:length]
    assert (beginning + one)[length : length + 1] != (beginning + other)[length : length + 1] or (
        length == min(len(beginning + one), len(beginning + other))
    )


class TableAgainstTruth(RuleBasedStateMachine):
    """Whatever is found was put, in this space, and shares what it says; without bounds nothing is missed."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(TableLimits(max_bytes=40 * CHUNK, max_entries=6))
        self.roomy = Table()
        self.put: dict[tuple[int, bytes], str] = {}

    chains = st.lists(st.integers(0, 2), max_size=5)

    @rule(chunks=chains, rest=st.integers(0, 3), space=st.integers(0, 1))
    def keep(self, chunks: list[int], rest: int, space: int) -> None:
        data, value = data_of(*chunks, rest=rest), str(len(self.put))
        self.put[space, data] = value
        self.table.put(data, value, space)
        self.roomy.put(data, value, space)

    @rule(chunks=chains, rest=st.integers(0, 3), space=st.integers(0, 1))
    def ask(self, chunks: list[int], rest: int, space: int) -> None:
        asked = data_of(*chunks, rest=rest)
        values = {v: data for (own, data), v in self.put.items() if own == space}
        longest = max((common_length(asked, data) for data in values.values()), default=0)
        for table in (self.table, self.roomy):
            found = table.find(asked, space)
            if found is not None:
                value, num_common = found
                assert num_common == common_length(asked, values[value])
            if table is self.roomy:
                num_found = 0 if found is None else found[1]
                assert num_found // CHUNK == longest // CHUNK

    @invariant()
    def is_sound(self) -> None:
        self.table.table.check()


TestTableAgainstTruth = TableAgainstTruth.TestCase
TestTableAgainstTruth.settings = settings(max_examples=30, stateful_step_count=20)


def test_names_of_chunks_cover_all_before() -> None:
    rng = random.Random(0)
    data = rng.randbytes(5 * CHUNK + 9)
    names = chunk_names(3, data)
    assert len(names) == 5
    assert chunk_names(3, data[: 2 * CHUNK]) == names[:2]
    changed = bytes([data[0] ^ 1]) + data[1:]
    assert set(chunk_names(3, changed)).isdisjoint(names)
    assert set(chunk_names(4, data)).isdisjoint(names)


def test_texts_are_data_as_well() -> None:
    table: PrefixTable[str, int] = PrefixTable(ROOMY)
    text = "é日\ud800a" * (CHUNK // 2)
    table.put(0, text, chunk_names(0, text), 7, 8)
    table.check()
    for asked, num_common in ((text + "x", 2 * CHUNK), (text[: CHUNK + 9] + "!" * 99, CHUNK + 9)):
        assert table.find(0, asked, chunk_names(0, asked)) == (7, num_common)
