"""Lines and objects: what they show, that they fit, and that nothing of an engine reaches a terminal raw."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroute.tap.heard import Batch, Note, NoteKind
from kvroute.tap.line import HEADING, clock_time, event_lines, note_line
from kvroute.tap.outlets import JsonLines, Lines
from kvroute.tap.summary import Summary
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, KvEvent, LiveMessage

HASH = 0xA1B2C3D4E5F60718


def heard(*events: KvEvent, seq: int = 17, replayed: bool = False) -> Batch:
    return Batch(0, LiveMessage(b"", seq, b""), EventBatch(1000.5, events, 0), 1000.75, replayed)


def line(event: KvEvent, *, shows_tokens: bool = False) -> str:
    ((_, text),) = event_lines(heard(event), shows_tokens=shows_tokens)
    return text.partition(" ")[2].strip()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            BlockStored([HASH], None, list(range(4)), 4, "GPU"),
            "17   0 stored  GPU           1×4 a1b2c3        root        4",
        ),
        (
            BlockStored([HASH, 1], 2, list(range(128)), 64, "CPU_PINNED", lora_name="sql"),
            "17   0 stored  CPU_PINNED   2×64 a1b2c3…000000 000000    128 lora=sql",
        ),
        (
            BlockStored([b"\xff" * 32], None, [], 0, "CPU", group_idx=1, spec_kind="mla"),
            "17   0 stored  CPU           1×0 ffffff        –           0 group=1:mla",
        ),
        (
            BlockStored([], None, [1], 1, cache_salt="hush", extra_keys=[["k"]], session_id="s"),
            "17   0 stored  –             0×1 –             root        1 salted keyed",
        ),
        (
            BlockRemoved([HASH] * 3, "GPU", 0, "REMOTE"),
            "17   0 removed GPU             3 a1b2c3…a1b2c3               group=0 locality=REMOTE",
        ),
        (AllBlocksCleared(), "17   0 cleared all"),
        (AllBlocksCleared("GPU"), "17   0 cleared GPU"),
    ],
)
def test_one_line_an_event(event: KvEvent, expected: str) -> None:
    assert line(event) == expected


def test_an_ordinary_line_fits_into_80_columns() -> None:
    event = BlockStored([HASH] * 100, HASH, [0] * 6400, 64, "CPU_PINNED")
    ((_, text),) = event_lines(heard(event, seq=999_999))
    assert len(text) <= 80
    assert len(HEADING) <= 80


def test_tokens_and_salts_are_shown_to_those_who_ask_and_to_nobody() -> None:
    event = BlockStored([1], None, [101, 102], 2, cache_salt="hush", session_id="dialogue")
    assert "101" not in line(event)
    assert "tokens=[101, 102]" in line(event, shows_tokens=True)
    assert "hush" not in line(event, shows_tokens=True)
    quiet, loud = json_of(event, shows_tokens=False), json_of(event, shows_tokens=True)
    assert "token_ids" not in quiet
    assert loud["token_ids"] == [101, 102]
    assert loud["is_salted"] is True
    assert "hush" not in str(loud)
    assert "dialogue" not in str(loud)


def json_of(event: KvEvent, *, shows_tokens: bool) -> dict[str, object]:
    stream = io.BytesIO()
    JsonLines(stream, "w", shows_tokens).show(heard(event))
    found: dict[str, object] = json.loads(stream.getvalue())
    return found


def test_objects_have_hashes_as_text_and_the_lag() -> None:
    found = json_of(BlockStored([HASH], None, [1], 1, "GPU"), shows_tokens=False)
    assert found["hashes"] == ["a1b2c3d4e5f60718"]
    assert (found["kind"], found["event"], found["seq"]) == ("event", "stored", 17)
    assert found["lag_s"] == 0.25


@pytest.mark.parametrize("clock", [float("nan"), float("inf"), float("-inf")])
def test_a_clock_that_is_no_time_has_no_lag_and_spoils_no_mean(clock: float) -> None:
    stored = BlockStored([HASH], None, [1], 1, "GPU")
    strange = Batch(0, LiveMessage(b"", 18, b""), EventBatch(clock, [stored], 0), 1000.0)
    stream, summary = io.BytesIO(), Summary()
    JsonLines(stream, "w").show(strange)
    found = json.loads(stream.getvalue())
    assert (found["time"], found["lag_s"]) == (None, None)
    for one in (strange, heard(stored), strange):
        summary.add("w", one)
    assert (summary.lag_mean_s, summary.lag_max_s) == (0.25, 0.25)
    ((_, text),) = event_lines(strange)
    assert text.startswith("--:--:--.---")


TEXT = st.text(st.characters(), max_size=200)


@given(TEXT, TEXT, TEXT, TEXT)
def test_no_text_of_an_engine_reaches_a_terminal_raw(
    medium: str, lora: str, kind: str, locality: str
) -> None:
    events: list[KvEvent] = [
        BlockStored([1], None, [1], 1, medium, None, lora, spec_kind=kind, locality=locality),
        BlockRemoved([1], medium, locality=locality),
        AllBlocksCleared(medium),
    ]
    for _, text in event_lines(heard(*events)):
        assert text.isprintable()
        assert len(text) < 500
    assert note_line(Note(NoteKind.BAD_FRAMES, medium, 0.0)).isprintable()
    stream = io.BytesIO()
    JsonLines(stream, "w").show(heard(*events))
    assert [json.loads(one)["kind"] for one in stream.getvalue().splitlines()] == ["event"] * 3


@pytest.mark.parametrize("at", [-1e300, 1e300, float("nan"), float("inf"), -5.5, 1.5])
def test_any_time_is_shown(at: float) -> None:
    assert len(clock_time(at)) == 12


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_faults_stand_out_and_only_a_terminal_gets_colours() -> None:
    gap = Note(NoteKind.GAP, "2 batches missing: 18 to 19", 0.0, 0, (18, 19))
    for stream, has_colours in ((io.StringIO(), False), (Terminal(), True)):
        lines = Lines(stream)
        lines.show(heard(AllBlocksCleared()))
        lines.show(gap)
        lines.show(Note(NoteKind.CONNECTED, "connected to tcp://w:1", 0.0))
        summary = Summary()
        for one in (heard(AllBlocksCleared()), gap):
            summary.add("w", one)
        lines.close(summary, 2.0)
        text = stream.getvalue()
        assert "!! rank 0: 2 batches missing: 18 to 19" in text
        assert "-- connected to tcp://w:1" in text
        assert "1 event in 1 batch of 1 rank in 2.0 s; gap: 1; batches missing: 2" in text
        assert "heard after 250.0 ms, at most 250.0" in text
        assert ("\x1b" in text) is has_colours
