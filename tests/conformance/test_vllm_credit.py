"""What vLLM reused is never less than what its events had been credited for: one test a recorded request.

Credit is what the index knew of the serving rank, in the request's namespace, before the first line of the
request's phase, for within a phase requests and events are not causally ordered. An engine reuses at most all
tokens but the last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from indexer import Prompt, RankMatch
from protocol import BlockStored, EngineKind, decode_batch, pack_tokens, parse_live
from tests.conformance.listening import MODEL, Listener
from tests.recordings import frames_of, json_lines, vllm_recordings

BEHIND_A_CLEAR = "a clear is announced with the next step only: credit is out of date until then"


@dataclass(frozen=True)
class Request:
    """One recorded request: the line, and those of its recording before its phase."""

    recording: Path
    number: int
    line: dict[str, Any]
    before: list[dict[str, Any]]


def requests_of(recording: Path) -> Iterator[Request]:
    lines = list(json_lines(recording))
    begins: dict[str | None, int] = {}
    for number, line in enumerate(lines):
        first = begins.setdefault(line.get("phase"), number)
        if line.get("kind") == "http":
            yield Request(recording, number, line, lines[:first])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    requests = [one for path in vllm_recordings(golden) for one in requests_of(path)]
    names = [f"{one.recording.stem}-{one.line.get('phase')}-{one.number}" for one in requests]
    metafunc.parametrize("request_line", requests, ids=names)


def published_rank(recording: Path) -> int:
    """The rank whose events the recording holds."""
    for line in json_lines(recording):
        if line.get("kind") == "pub":
            return decode_batch(parse_live(frames_of(line)).payload).dp_rank or 0
    return 0


def adapters_of(recording: Path) -> set[str]:
    """Adapters that the events name."""
    names: set[str] = set()
    for line in json_lines(recording):
        if line.get("kind") == "pub":
            for event in decode_batch(parse_live(frames_of(line)).payload).events:
                if isinstance(event, BlockStored) and event.lora_name is not None:
                    names.add(event.lora_name)
    return names


def serving_rank(one: Request, own: int) -> int | None:
    """The rank that served the request: named by it, or the one whose events came in its phase."""
    named = {k.lower(): v for k, v in (one.line.get("req_headers") or {}).items()}
    if "x-data-parallel-rank" in named:
        return int(named["x-data-parallel-rank"])
    phase = one.line.get("phase")
    lines = json_lines(one.recording)
    if any(line.get("kind") == "pub" and line.get("phase") == phase for line in lines):
        return own
    return own if num_ranks_beside(one.recording) < 2 else None


def num_ranks_beside(recording: Path) -> int:
    """Ranks of the same engine that were recorded, this one included."""
    engine, separator, _ = recording.stem.rpartition("_rank")
    return len(list(recording.parent.glob(f"{engine}_rank*.jsonl"))) if separator else 1


def prompt_of(one: Request) -> list[int] | None:
    """The prompt's tokens; None where the recording does not say them."""
    request, response = one.line["request"], one.line.get("response")
    if not isinstance(request, dict) or not isinstance(response, dict):
        return None
    prompt = request.get("prompt")
    if prompt is None:
        prompt = response.get("prompt_token_ids")
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    return None


def cached_tokens_of(one: Request) -> int | None:
    usage = one.line["response"].get("usage") or {}
    cached: int | None = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return cached


def listen(one: Request, rank: int) -> Listener:
    listening = Listener(EngineKind.VLLM, dp_rank=rank)
    for line in one.before:
        if line.get("kind") == "pub":
            listening.live(frames_of(line))
    return listening


def credited_tokens(match: RankMatch, num_prompt: int) -> int:
    """Tokens of the match that an engine can reuse: it computes at least the last one."""
    reusable = (num_prompt - 1) // match.block_size
    return min(match.matched_blocks, reusable) * match.block_size


def test_credit_is_kept(request_line: Request) -> None:
    one = request_line
    if one.line.get("phase") == "after_reset":
        pytest.skip(BEHIND_A_CLEAR)
    prompt = prompt_of(one)
    if prompt is None:
        pytest.skip("the recording does not say the prompt's tokens")
    cached = cached_tokens_of(one)
    if cached is None:
        pytest.skip("no cached tokens were reported")
    own = published_rank(one.recording)
    rank = serving_rank(one, own)
    if rank is None:
        pytest.skip("nothing says which of several ranks served it")
    if rank != own:
        pytest.skip(f"served by rank {rank}, whose events are in another recording")
    listening = listen(one, own)
    if listening.tap.fold.has_sparse_groups:
        pytest.skip("a hit needs all groups, full-attention blocks are an upper bound")
    model, salt = one.line["request"].get("model"), one.line["request"].get("cache_salt")
    adapter = model if model in adapters_of(one.recording) else None
    asked = Prompt(pack_tokens(prompt), MODEL, adapter, salt)
    (match,) = listening.index.match(asked, [listening.rank], 0.0)
    assert cached >= credited_tokens(match, len(prompt))
