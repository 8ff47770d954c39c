"""Recordings of real engines, as the tests read them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Each line of a recording as its JSON object."""
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


def sglang_scenarios(golden: Path) -> list[Path]:
    """Recorded scenarios of SGLang's tree core under ``golden``; empty where there are none."""
    return sorted((golden / "sglang").glob("*.jsonl"))


def vllm_recordings(golden: Path) -> list[Path]:
    """Recorded event streams of vLLM under ``golden``; empty where there are none."""
    return sorted((golden / "vllm").glob("*.jsonl"))


def frames_of(line: dict[str, Any]) -> list[bytes]:
    """The raw multipart message of a recorded line."""
    return [bytes.fromhex(frame) for frame in line["frames_hex"]]
