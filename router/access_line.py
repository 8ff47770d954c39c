"""One request as a line of the access log: JSON, or ``name=value`` pairs (logfmt).

There is no prompt in it, no body, no header, no credential, and of the path no query. What clients and workers
say is of printable characters and short, so that no line can be broken or forged, and none is longer than some
3 KiB.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import orjson

from router.plain_text import plain
from router.request_record import Attempt, RequestRecord

MAX_PATH = 512
MAX_COUNT = (1 << 53) - 1
"""Of tokens; what a worker says beyond it is told as this."""
_BARE = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/+-@%~,;()[]{}*!$&'"
)
_Value = str | int | float | bool | None


def json_line(record: RequestRecord) -> bytes:
    """As JSON, with its line end; what is not known is null."""
    return orjson.dumps(fields(record), option=orjson.OPT_APPEND_NEWLINE)


def text_line(record: RequestRecord) -> bytes:
    """As pairs, with its line end; what is not known is left out."""
    pairs = [
        f"{name}={_text(value)}" for name, value in fields(record).items() if value is not None
    ]
    return " ".join(pairs).encode() + b"\n"


def fields(record: RequestRecord) -> Mapping[str, _Value]:
    """Everything that is told of a request that has ended. Durations in milliseconds."""
    first_byte_at, ended_at = record.first_byte_at, record.ended_at
    started_at = record.started_at
    return {
        "time": _time(record.time),
        "request_id": record.request_id,
        "trace_id": record.hex_trace_id,
        "address": record.address,
        "client": record.client,
        "method": plain(record.method, 32) or None,
        "path": plain(record.path, MAX_PATH) or None,
        "status": record.status,
        "outcome": str(record.end),
        "error": None if record.refusal is None else str(record.refusal),
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "queue_ms": _ms(record.queued_s),
        "ttft_ms": None if first_byte_at is None else _ms(first_byte_at - started_at),
        "total_ms": None if ended_at is None else _ms(ended_at - started_at),
        **_asked(record),
        **_decided(record),
        **_reported(record.last_attempt),
        "attempts": len(record.attempts),
    }


def _asked(record: RequestRecord) -> Mapping[str, _Value]:
    asked = record.asked
    return {
        "api": record.api,
        "model": None if asked is None or asked.model is None else plain(asked.model),
        "is_streaming": None if asked is None else asked.is_streaming,
    }


def _decided(record: RequestRecord) -> Mapping[str, _Value]:
    """The last decision: who was chosen, why, and on what grounds."""
    decision, chosen = record.decision, record.chosen
    return {
        "worker": None if chosen is None else chosen.worker,
        "dp_rank": None if chosen is None else chosen.dp_rank,
        "policy": None if decision is None else decision.policy,
        "reason": None if decision is None else str(decision.reason),
        "trust": None if chosen is None else str(chosen.trust),
        "prompt_tokens": None if decision is None else decision.prompt_tokens,
        "matched_tokens": None if chosen is None else chosen.matched_tokens,
        "predicted_tokens": None if chosen is None else chosen.predicted_blocks * chosen.block_size,
    }


def _reported(attempt: Attempt | None) -> Mapping[str, _Value]:
    """As the engine counts."""
    outcome = None if attempt is None else attempt.outcome
    return {
        "reported_prompt_tokens": None if outcome is None else _count(outcome.prompt_tokens),
        "reported_cached_tokens": None if outcome is None else _count(outcome.cached_tokens),
        "reported_output_tokens": None if outcome is None else _count(outcome.output_tokens),
    }


def _count(value: int | None) -> int | None:
    """Workers may say any number, and JSON here takes none beyond 64 bits."""
    return value if value is None else min(value, MAX_COUNT)


def _time(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _text(value: _Value) -> str:
    if isinstance(value, str):
        return value if value and _BARE.issuperset(value) else orjson.dumps(value).decode()
    return orjson.dumps(value).decode()
