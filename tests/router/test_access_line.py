"""Lines of the access log: what is told, what never is, and what hostile values become."""

import json
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.access_line import MAX_COUNT, MAX_PATH, json_line, text_line
from router.errors import ErrorKind
from router.request_record import RequestEnd, RequestRecord
from scoring import Outcome, OutcomeKind
from tests.router.records import HOSTILE, hostile, record

MAX_LINE_BYTES = 4096


def parsed(line: bytes) -> dict[str, object]:
    found: dict[str, object] = json.loads(line)
    return found


def test_a_request_in_json() -> None:
    assert parsed(json_line(record(trace_id=0xABC))) == {
        "time": "2023-11-14T22:13:20.500Z",
        "request_id": "id-1",
        "trace_id": "00000000000000000000000000000abc",
        "address": "10.1.2.3",
        "client": "team-a",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "completed",
        "error": None,
        "bytes_in": 1000,
        "bytes_out": 2000,
        "queue_ms": 1.0,
        "ttft_ms": 40.0,
        "total_ms": 100.0,
        "api": "chat",
        "model": "m",
        "is_streaming": True,
        "worker": "w0",
        "dp_rank": 0,
        "policy": "stub",
        "reason": "round_robin",
        "trust": "exact",
        "prompt_tokens": None,
        "matched_tokens": 8,
        "predicted_tokens": 0,
        "reported_prompt_tokens": 100,
        "reported_cached_tokens": 64,
        "reported_output_tokens": 20,
        "attempts": 1,
    }


def test_the_same_as_text_leaves_out_what_is_not_known() -> None:
    line = text_line(record())
    pairs = dict(pair.split("=", 1) for pair in shlex.split(line.decode()))
    told = {name: value for name, value in parsed(json_line(record())).items() if value is not None}
    assert pairs.keys() == told.keys()
    assert pairs["path"] == "/v1/chat/completions"
    assert pairs["total_ms"] == "100.0"
    assert line.count(b"\n") == 1


def test_a_refused_request() -> None:
    refused = record(
        attempts=[],
        asked=None,
        asked_at=None,
        waits=[],
        client=None,
        status=401,
        refusal=ErrorKind.UNAUTHORIZED,
        first_byte_at=None,
    )
    told = parsed(json_line(refused))
    assert (told["outcome"], told["error"], told["status"]) == ("refused", "invalid_api_key", 401)
    assert (told["worker"], told["attempts"], told["queue_ms"]) == (None, 0, 0.0)


def test_what_never_was_a_request() -> None:
    bare = RequestRecord("id", "", "", None, 1.0, 2.0, status=400, refusal=ErrorKind.MALFORMED)
    told = parsed(json_line(bare))
    assert (told["method"], told["path"], told["outcome"]) == (None, None, "refused")
    assert b"method" not in text_line(bare)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escaped_and_cut(text: str) -> None:
    for line in (json_line(hostile(text)), text_line(hostile(text))):
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert line.decode().rstrip("\n").isprintable()
        assert len(line) <= MAX_LINE_BYTES
    told = parsed(json_line(hostile(text)))
    assert told["outcome"] == "completed"
    pairs = dict(pair.split("=", 1) for pair in shlex.split(text_line(hostile(text)).decode()))
    assert pairs["outcome"] == "completed"
    assert len(str(told["path"])) <= MAX_PATH + 1


@given(st.text(max_size=600))
def test_any_text_makes_a_line_that_can_be_read(text: str) -> None:
    line = text_line(hostile(text))
    assert line.count(b"\n") == 1
    assert line.decode().rstrip("\n").isprintable()
    assert parsed(json_line(hostile(text)))["status"] == 200


@pytest.mark.parametrize("count", [0, MAX_COUNT, MAX_COUNT + 1, 1 << 64, 10**400])
def test_numbers_of_workers_are_bounded(count: int) -> None:
    made = record()
    made.attempts = [
        replace(made.attempts[0], outcome=Outcome(OutcomeKind.COMPLETED, count, count, count))
    ]
    assert parsed(json_line(made))["reported_output_tokens"] == min(count, MAX_COUNT)
    assert text_line(made)


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_every_outcome_of_an_attempt_has_a_word(kind: OutcomeKind) -> None:
    made = record()
    made.attempts = [replace(made.attempts[0], outcome=Outcome(kind))]
    word = "broken_off" if kind is OutcomeKind.STALE else kind.value
    assert parsed(json_line(made))["outcome"] == RequestEnd(word)
