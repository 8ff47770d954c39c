"""Traces: one JSON object a line, prompts told as ids of blocks (Mooncake's format) or as chats.

    {"timestamp": 3000, "input_length": 1100, "output_length": 20, "hash_ids": [0, 7, 8]}
    {"timestamp": 3000, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20}

``timestamp`` is in milliseconds from the start; ``hash_ids`` names the prompt's blocks of ``block_size``
tokens in order, the last of which may be partial. Equal ids are equal blocks after equal prefixes.
``max_tokens`` may be left out. Unknown fields are ignored. A line that cannot be read is an error with its number, or skipped and
counted by reason, as the caller chooses.

Source: Mooncake, FAST'25 traces.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.fault_words import first_fault

BLOCK_SIZE = 512
MAX_LINE_BYTES = 4 << 20
MAX_TIMESTAMP_MS = 366 * 86_400e3
"""A year: a time from the start, not of a calendar."""


class LineFault(StrEnum):
    """Why a line was not read."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_FIELD = "missing_field"
    BAD_FIELD = "bad_field"
    BLOCK_COUNT = "block_count"
    TOO_LONG = "too_long"


class OnBadLine(StrEnum):
    """What a bad line does: stop with an error, or be skipped and counted."""

    FAIL = "fail"
    SKIP = "skip"


class TraceError(Exception):
    """A line cannot be read. The message names the line and the field."""

    def __init__(self, line_number: int, fault: LineFault, detail: str) -> None:
        super().__init__(f"line {line_number}: {detail}")
        self.line_number = line_number
        self.fault = fault


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One request of a trace.

    Attributes:
        timestamp_ms: when it starts, from the start of the trace.
        input_length: prompt tokens, at least 1.
        output_length: tokens to generate.
        hash_ids: one a block, in order.
    """

    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """One chat of a trace.

    Attributes:
        messages: as they are sent, not looked into.
        max_tokens: to generate; None leaves it to the server.
    """

    timestamp_ms: float
    messages: tuple[Mapping[str, object], ...]
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Records in order of time (equal times keep the order of the file), and what was skipped."""

    records: tuple[TraceRecord | ChatRecord, ...]
    skipped: Mapping[LineFault, int] = field(default_factory=dict)


def load_trace(
    path: Path,
    *,
    block_size: int = BLOCK_SIZE,
    on_bad_line: OnBadLine = OnBadLine.FAIL,
    max_records: int | None = None,
) -> Trace:
    """Read a trace file.

    Args:
        path: JSON lines.
        block_size: tokens that each hash id stands for.
        on_bad_line: stop, or skip and count.
        max_records: read no further than that many good lines; None reads all.

    Raises:
        TraceError: a bad line, where ``on_bad_line`` is ``FAIL``.
        OSError: the file cannot be read.
    """
    with path.open("rb") as lines:
        return read_trace(
            lines, block_size=block_size, on_bad_line=on_bad_line, max_records=max_records
        )


def read_trace(
    lines: Iterable[bytes],
    *,
    block_size: int = BLOCK_SIZE,
    on_bad_line: OnBadLine = OnBadLine.FAIL,
    max_records: int | None = None,
) -> Trace:
    """``load_trace`` over lines in memory. Empty lines are no lines."""
    records: list[TraceRecord | ChatRecord] = []
    skipped: Counter[LineFault] = Counter()
    for line_number, line in enumerate(lines, start=1):
        if max_records is not None and len(records) >= max_records:
            break
        if not line.strip():
            continue
        try:
            records.append(_record(line_number, line, block_size))
        except TraceError as error:
            if on_bad_line is OnBadLine.FAIL:
                raise
            skipped[error.fault] += 1
    records.sort(key=lambda record: record.timestamp_ms)
    return Trace(tuple(records), dict(skipped))


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    timestamp: float = Field(ge=0, le=MAX_TIMESTAMP_MS, allow_inf_nan=False)
    input_length: int = Field(ge=1, le=1 << 24)
    output_length: int = Field(ge=0, le=1 << 24)
    hash_ids: list[int] = Field(min_length=1)


class _ChatLine(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    timestamp: float = Field(ge=0, le=MAX_TIMESTAMP_MS, allow_inf_nan=False)
    messages: list[dict[str, object]] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1, le=1 << 24)


def _record(line_number: int, line: bytes, block_size: int) -> TraceRecord | ChatRecord:
    if len(line) > MAX_LINE_BYTES:
        raise TraceError(line_number, LineFault.TOO_LONG, f"longer than {MAX_LINE_BYTES} bytes")
    try:
        if b'"messages"' in line and b'"hash_ids"' not in line:
            chat = _ChatLine.model_validate_json(line)
            return ChatRecord(chat.timestamp, tuple(chat.messages), chat.max_tokens)
        read = _Line.model_validate_json(line)
    except ValidationError as error:
        raise _trace_error(line_number, error) from error
    return _block_record(line_number, read, block_size)


def _block_record(line_number: int, read: _Line, block_size: int) -> TraceRecord:
    if min(read.hash_ids) < 0 or max(read.hash_ids) >= 1 << 63:
        raise TraceError(line_number, LineFault.BAD_FIELD, "hash_ids: an id is not a 63-bit number")
    num_blocks = -(-read.input_length // block_size)
    if len(read.hash_ids) != num_blocks:
        raise TraceError(
            line_number,
            LineFault.BLOCK_COUNT,
            f"hash_ids: {len(read.hash_ids)} ids for {read.input_length} tokens in blocks of "
            f"{block_size}, which are {num_blocks}",
        )
    return TraceRecord(read.timestamp, read.input_length, read.output_length, tuple(read.hash_ids))


_FAULTS = {
    "json_invalid": LineFault.NOT_JSON,
    "model_type": LineFault.NOT_AN_OBJECT,
    "missing": LineFault.MISSING_FIELD,
}


def _trace_error(line_number: int, error: ValidationError) -> TraceError:
    fault = _FAULTS.get(error.errors()[0]["type"], LineFault.BAD_FIELD)
    return TraceError(line_number, fault, first_fault(error))
