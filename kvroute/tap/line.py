"""What was heard as lines for people: one an event, in columns that fit into 80 characters.

    time            seq rnk event   medium     blocks hashes        parent tokens more
    12:00:01.123     17   0 stored  GPU          3×64 a1b2c3…e5f607 9f8e7d    192 lora=sql

Hashes are the first six hex digits of the engine's own; several are shown by the first and the last. Names
that come from the engine are cut, and of characters that a terminal only shows.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvroute.tap.heard import Batch, Note
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash, KvEvent
from router.plain_text import plain

_DIGITS = 6
_WIDEST_NAME = 64
_COLUMNS = "{:<12} {:>6} {:>3} {:<7} {:<10} {:>6} {:<13} {:<6} {:>6} {}"
HEADING = _COLUMNS.format(
    "time", "seq", "rnk", "event", "medium", "blocks", "hashes", "parent", "tokens", ""
).rstrip()


@dataclass(frozen=True, slots=True)
class EventCells:
    """What the columns of one event hold."""

    event: str
    medium: str = "–"
    blocks: str = ""
    hashes: str = ""
    parent: str = ""
    tokens: str = ""
    more: str = ""


def event_lines(batch: Batch, *, shows_tokens: bool = False) -> Iterator[tuple[str, str]]:
    """Name and line of each event of a batch, in order."""
    at = clock_time(batch.batch.ts)
    for event in batch.batch.events:
        cells = _cells(event, shows_tokens=shows_tokens)
        more = f"{cells.more} replayed".strip() if batch.is_replayed else cells.more
        line = _COLUMNS.format(
            at,
            batch.message.seq,
            batch.dp_rank,
            cells.event,
            cells.medium,
            cells.blocks,
            cells.hashes,
            cells.parent,
            cells.tokens,
            more,
        )
        yield cells.event, line.rstrip()


def note_line(note: Note) -> str:
    """A line that stands out between events: ``!!`` before a fault, ``--`` before anything else."""
    mark = "!!" if note.is_fault else "--"
    rank = "" if note.dp_rank is None else f"rank {note.dp_rank}: "
    return f"{clock_time(note.at)} {mark} {rank}{plain(note.text)}"


def clock_time(at: float) -> str:
    """Local time of day with milliseconds; what is no time of ours is shown as dashes."""
    try:
        local = time.localtime(at)
    except (OverflowError, ValueError, OSError):
        return "--:--:--.---"
    return f"{time.strftime('%H:%M:%S', local)}.{int(at % 1 * 1000):03d}"


def short_hash(block_hash: EngineHash) -> str:
    """Its first digits."""
    return full_hash(block_hash)[:_DIGITS]


def full_hash(block_hash: EngineHash) -> str:
    """A number as 16 hex digits, bytes as theirs."""
    return block_hash.hex() if isinstance(block_hash, bytes) else f"{block_hash:016x}"


def _cells(event: KvEvent, *, shows_tokens: bool) -> EventCells:
    match event:
        case BlockStored():
            return _stored(event, shows_tokens=shows_tokens)
        case BlockRemoved():
            more = _named(event.group_idx, None) + _field("locality", event.locality)
            return EventCells(
                "removed",
                _name(event.medium),
                str(len(event.block_hashes)),
                _hashes(event.block_hashes),
                more=" ".join(more),
            )
        case AllBlocksCleared():
            return EventCells("cleared", "all" if event.medium is None else _name(event.medium))


def _stored(event: BlockStored, *, shows_tokens: bool) -> EventCells:
    more = [
        *_named(event.group_idx, event.spec_kind),
        *_field("lora", event.lora_name if event.lora_name is not None else event.lora_id),
        *_field("locality", event.locality),
        *(["salted"] if event.cache_salt is not None else []),
        *(["keyed"] if any(event.extra_keys or ()) else []),
        *(["pairs"] if event.is_eagle else []),
        *([f"tokens={list(event.token_ids)}"] if shows_tokens else []),
    ]
    is_root = event.parent_hash is None and bool(event.token_ids)
    return EventCells(
        "stored",
        _name(event.medium),
        f"{len(event.block_hashes)}×{event.block_size}",
        _hashes(event.block_hashes),
        short_hash(event.parent_hash)
        if event.parent_hash is not None
        else ("root" if is_root else "–"),
        str(len(event.token_ids)),
        " ".join(more),
    )


def _hashes(hashes: Sequence[EngineHash]) -> str:
    if not hashes:
        return "–"
    first = short_hash(hashes[0])
    return first if len(hashes) == 1 else f"{first}…{short_hash(hashes[-1])}"


def _named(group_idx: int | None, spec_kind: str | None) -> list[str]:
    kind = "" if spec_kind is None else f":{_name(spec_kind)}"
    return [] if group_idx is None and not kind else [f"group={_number(group_idx)}{kind}"]


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)


def _field(label: str, value: str | int | None) -> list[str]:
    return [] if value is None else [f"{label}={_name(str(value))}"]


def _name(text: str | None) -> str:
    return "–" if text is None else plain(text, _WIDEST_NAME)
