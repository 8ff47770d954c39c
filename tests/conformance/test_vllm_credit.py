"""What vLLM reused is never less than what its events had been credited for: one test a recorded request.

Credit is what the index knew of the serving rank, in the request's namespace, before the first line of the
request's phase, for within a phase requests and events are not causally ordered. An engine reuses at most all
tokens but the last. Of an engine with several ranks each one's events are in a recording of their own, beside the
requests to all of them: they are read together.
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
NO_PROMPT = "the recording does not say the prompt's tokens"
NO_REPORT = "no cached tokens were reported"
NO_RANK = "it names no rank, and was served without an event: any of several ranks may have"
NEEDS_ALL_GROUPS = "a hit needs all groups, full-attention blocks are an upper bound"


@dataclass(frozen=True)
class Request:
    """One recorded request."""

    recording: Path
    line: dict[str, Any]

    @property
    def phase(self) -> str | None:
        """What was going on; requests and events of one phase are not ordered."""
        phase: str | None = self.line.get("phase")
        return phase


def requests_of(recording: Path) -> Iterator[tuple[str, Request]]:
    """Requests by name."""
    for number, line in enumerate(json_lines(recording)):
        if line.get("kind") == "http":
            yield f"{recording.stem}-{line.get('phase')}-{number}", Request(recording, line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    if "request_line" in metafunc.fixturenames:
        requests = dict(one for path in vllm_recordings(golden) for one in requests_of(path))
        metafunc.parametrize("request_line", list(requests.values()), ids=list(requests))


def published(recording: Path) -> Iterator[tuple[str | None, list[bytes]]]:
    """Phase and frames of every live message."""
    for line in json_lines(recording):
        if line.get("kind") == "pub":
            yield line.get("phase"), frames_of(line)


def published_rank(recording: Path) -> int:
    """The rank whose events the recording holds."""
    for _, frames in published(recording):
        return decode_batch(parse_live(frames).payload).dp_rank or 0
    return 0


def adapters_of(recording: Path) -> set[str]:
    """Adapters that the events name."""
    return {
        event.lora_name
        for _, frames in published(recording)
        for event in decode_batch(parse_live(frames).payload).events
        if isinstance(event, BlockStored) and event.lora_name is not None
    }


def recordings_beside(recording: Path) -> dict[int, Path]:
    """The recordings of all ranks of the same engine, by rank; this one included."""
    engine, separator, _ = recording.stem.rpartition("_rank")
    paths = recording.parent.glob(f"{engine}_rank*.jsonl") if separator else [recording]
    return {published_rank(path): path for path in paths}


def serving_recording(one: Request) -> Path | None:
    """Where the events of the rank are that served the request: named by it, or the one that spoke in its phase."""
    beside = recordings_beside(one.recording)
    named = {k.lower(): v for k, v in (one.line.get("req_headers") or {}).items()}
    if "x-data-parallel-rank" in named:
        return beside.get(int(named["x-data-parallel-rank"]))
    if len(beside) == 1:
        return one.recording
    speaking = [path for path in beside.values() if one.phase in dict(published(path))]
    return speaking[0] if len(speaking) == 1 else None


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


def listen(recording: Path, phase: str | None) -> Listener:
    """Hear every message before the first line of the phase."""
    listening = Listener(EngineKind.VLLM, dp_rank=published_rank(recording))
    for line in json_lines(recording):
        if line.get("phase") == phase:
            break
        if line.get("kind") == "pub":
            listening.live(frames_of(line))
    return listening


def credited_tokens(match: RankMatch, num_prompt: int) -> int:
    """Tokens of the match that an engine can reuse: it computes at least the last one."""
    reusable = (num_prompt - 1) // match.block_size
    return min(match.matched_blocks, reusable) * match.block_size


def judge(one: Request) -> tuple[int, int] | str:
    """Tokens that the engine reused, and those credited to the rank before; or why nothing can be said."""
    if one.phase == "after_reset":
        return BEHIND_A_CLEAR
    prompt = prompt_of(one)
    if prompt is None:
        return NO_PROMPT
    cached = cached_tokens_of(one)
    if cached is None:
        return NO_REPORT
    serving = serving_recording(one)
    if serving is None:
        return NO_RANK
    listening = listen(serving, one.phase)
    if listening.tap.fold.has_sparse_groups:
        return NEEDS_ALL_GROUPS
    model, salt = one.line["request"].get("model"), one.line["request"].get("cache_salt")
    adapter = model if model in adapters_of(serving) else None
    asked = Prompt(pack_tokens(prompt), MODEL, adapter, salt)
    (match,) = listening.index.match(asked, [listening.rank], 0.0)
    return cached, credited_tokens(match, len(prompt))


def test_credit_is_kept(request_line: Request) -> None:
    judgement = judge(request_line)
    if isinstance(judgement, str):
        pytest.skip(judgement)
    cached, credited = judgement
    assert cached >= credited


def test_what_was_reused_had_been_credited(golden: Path) -> None:
    """Credit of nothing would be kept as well."""
    requests = [one for path in vllm_recordings(golden) for _, one in requests_of(path)]
    judgements = [found for found in map(judge, requests) if not isinstance(found, str)]
    reused = sum(cached for cached, _ in judgements)
    if not reused:
        pytest.skip("nothing was reused")
    assert sum(credited for _, credited in judgements) >= 0.9 * reused
