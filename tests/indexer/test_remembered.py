"""The memory by generations."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.remembered import Remembered


@given(st.integers(1, 5), st.lists(st.integers(0, 9)))
def test_the_last_entries_are_there_and_the_bound_holds(limit: int, keys: list[int]) -> None:
    memory: Remembered[int, int] = Remembered(limit)
    for i, key in enumerate(keys):
        memory.add(key, i)
        assert memory.get(key) == i
        assert len(memory) <= 2 * limit + 1
    distinct = list(dict.fromkeys(reversed(keys)))
    assert all(key in memory for key in distinct[:limit])


def test_an_old_entry_is_forgotten() -> None:
    memory: Remembered[int, str] = Remembered(2)
    for key in range(7):
        memory.add(key, str(key))
    assert (0 in memory, memory.get(0)) == (False, None)
    memory.clear()
    assert len(memory) == 0
