"""Prompts: CPU from a parsed chat to its tokens, and from tokens to block keys, as a conversation grows.

What: CPU time a request, all threads, median of several. A chat of 2 KB, and one of 200 KB, first as it was never
seen and then a turn of 2 KB longer each time; with memo and without, by the library that encodes. Baseline in the
same run: the same text without a memo. Why CPU and not latency: it says how many requests a core carries.

Rows: ``tokens_<library>_<size>_us`` from scratch, ``…_first_us`` with a memo that has not seen it,
``…_growing_us`` with a memo that has seen all but the last turn.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measurement import Measurement, main, measured
from prompt import (
    Api,
    PromptModel,
    RequestView,
    TableLimits,
    TokenizerChoice,
    TokenMemo,
    bundled_model_dir,
)

SIZES = {"2k": 2_000, "200k": 200_000}
TURN_BYTES = 2_000
WORDS = (Path(__file__).parents[1] / "README.md").read_text().split()


def turns(size_bytes: int, seed: int) -> list[dict[str, str]]:
    """Messages of a chat, one of the user first and last."""
    rng, messages = random.Random(seed), []
    for index in range(max(1, size_bytes // TURN_BYTES)):
        text = ""
        while len(text) < min(size_bytes, TURN_BYTES) - 60:
            text += rng.choice(WORDS) + " "
        messages.append({"role": "assistant" if index % 2 else "user", "content": text})
    return messages


def view_of(messages: Sequence[dict[str, str]]) -> RequestView:
    """A chat as it is read from a body."""
    body = {"model": "m", "messages": list(messages)}
    return RequestView(
        Api.CHAT,
        "m",
        is_streaming=False,
        max_output_tokens=None,
        cache_salt=None,
        session_id=None,
        body=body,
    )


def cpu_us(work: Callable[[], object]) -> float:
    """CPU microseconds of the process, for libraries encode in threads of their own."""
    begin = time.process_time_ns()
    work()
    return (time.process_time_ns() - begin) / 1e3


def growing(model: PromptModel, size: str, num_runs: int) -> tuple[list[float], list[float]]:
    """Microseconds of chats never seen, and of the same a turn later."""
    first, later = [], []
    for seed in range(num_runs):
        messages = turns(SIZES[size], seed)
        view = view_of(messages)
        first.append(cpu_us(lambda view=view: model.prompt_tokens(view)))  # type: ignore[misc]
        view = view_of([*messages, *turns(TURN_BYTES, seed + 1_000)])
        later.append(cpu_us(lambda view=view: model.prompt_tokens(view)))  # type: ignore[misc]
    return first, later


def rows_of(choice: TokenizerChoice, size: str, num_runs: int) -> list[Measurement]:
    """One library and size."""
    directory = bundled_model_dir()
    plain = PromptModel.load(directory, tokenizer=choice)
    memo = PromptModel.load(directory, tokenizer=choice, memo=TokenMemo(TableLimits()))
    for model in (plain, memo):
        growing(model, size, 1)
    _, scratch = growing(plain, size, num_runs)
    first, later = growing(memo, size, num_runs)
    name = f"tokens_{plain.backend}_{size}"
    base = measured(f"{name}_us", "µs CPU", scratch)
    return [
        base,
        measured(f"{name}_first_us", "µs CPU", first, base),
        measured(f"{name}_growing_us", "µs CPU", later, base),
    ]


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_runs = 5 if quick else 25
    rows: list[Measurement] = []
    for choice in (TokenizerChoice.AUTO, TokenizerChoice.HF):
        for size in SIZES:
            rows += rows_of(choice, size, num_runs)
    return rows


if __name__ == "__main__":
    main("Prompts", run)
