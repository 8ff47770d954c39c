"""The buffer of lines: bounded, in order, every line accounted for."""

from hypothesis import given
from hypothesis import strategies as st

from router.line_buffer import LineBuffer, LineFate


def test_the_first_line_asks_to_be_fetched() -> None:
    buffer = LineBuffer(100)
    assert [buffer.add(b"a"), buffer.add(b"b")] == [True, False]
    assert buffer.take() == [b"a", b"b"]
    assert buffer.add(b"c")


def test_lines_without_room_are_counted() -> None:
    buffer = LineBuffer(4)
    for line in (b"abc", b"de", b"f", b"g"):
        buffer.add(line)
    assert buffer.take() == [b"abc", b"f"]
    assert buffer.fates == {LineFate.NO_ROOM: 2}


@given(st.lists(st.one_of(st.binary(max_size=30), st.none())), st.integers(1, 60))
def test_every_line_is_taken_in_order_or_counted(steps: list[bytes | None], bound: int) -> None:
    buffer = LineBuffer(bound)
    added, taken = [], []
    for step in steps:
        if step is None:
            taken += buffer.take()
        else:
            before = buffer.fates[LineFate.NO_ROOM]
            buffer.add(step)
            if buffer.fates[LineFate.NO_ROOM] == before:
                added.append(step)
        buffer.check()
    assert taken + buffer.take() == added
