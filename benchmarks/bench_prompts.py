"""Prompts: CPU of rendering a chat, of its tokens, and of its block keys, as a conversation grows.

What: CPU time a request, all threads, median of several. A chat of 2 KB, and one of 200 KB, first as it was never
seen and then a turn of 2 KB longer each time; with memo and without, by the library that encodes. Baseline in the
same run: the same text without a memo. Why CPU and not latency: it says how many requests a core carries.

Rows: ``tokens_<library>_<size>_us`` from scratch, ``…_first_us`` with a memo that has not seen it,
``…_growing_us`` with a memo that has seen all but the last turn. ``render_<size>_us`` comes before
either. ``keys_<block size>_200k_us`` and ``…_growing_us`` the same for block keys.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measurement import Measurement, main, measured
from prompt import (
    PromptModel,
    TableLimits,
    Tokenizer,
    TokenizerChoice,
    TokenMemo,
    bundled_model_dir,
    load_tokenizer,
)
from prompt.model_files import read_model_files
from prompt.token_memo import remembering
from protocol import TokenBytes, block_keys
from scoring.key_memo import KeyMemo

MODEL = PromptModel.load(bundled_model_dir())
SIZES = {"2k": 2_000, "200k": 200_000}
TURN_BYTES = 2_000
MEMO_BYTES = 4 << 20
NUM_FULL = 12
"""Chats of 200 KB that fill it: from then on one goes for each that comes, as in a router that has run for a while."""
WORDS = (
    (Path(__file__).parents[1] / "README.md").read_text().encode("ascii", "ignore").decode().split()
)


def turns(size_bytes: int, seed: int) -> list[dict[str, str]]:
    """Messages of a chat, one of the user first and last."""
    rng, messages = random.Random(seed), []
    for index in range(max(1, size_bytes // TURN_BYTES)):
        text = ""
        while len(text) < min(size_bytes, TURN_BYTES) - 60:
            text += rng.choice(WORDS) + " "
        messages.append({"role": "assistant" if index % 2 else "user", "content": text})
    return messages


def cpu_us(work: Callable[[], object]) -> float:
    """CPU microseconds of the process, for libraries encode in threads of their own."""
    begin = time.process_time_ns()
    work()
    return (time.process_time_ns() - begin) / 1e3


def encoded(tokenizer: Tokenizer, size: str, num_runs: int) -> tuple[list[float], list[float]]:
    """Microseconds of chats never seen, and of the same a turn later."""
    first: list[float] = []
    later: list[float] = []
    for seed in range(num_runs):
        messages = turns(SIZES[size], seed)
        for runs, said in (
            (first, messages),
            (later, [*messages, *turns(TURN_BYTES, seed + 1_000)]),
        ):
            text = MODEL.render_chat({"messages": said})
            runs.append(cpu_us(partial(tokenizer.encode, text, add_special_tokens=False)))
    return first, later


def rows_of(choice: TokenizerChoice, size: str, num_runs: int) -> list[Measurement]:
    """One library and size."""
    files = read_model_files(bundled_model_dir())
    plain = load_tokenizer(files.tokenizer, choice)
    memo = remembering(plain, files.written(), TokenMemo(TableLimits(MEMO_BYTES)))
    assert not isinstance(memo, str)
    encoded(plain, size, 2)
    _, scratch = encoded(plain, size, num_runs)
    first, later = encoded(memo, size, NUM_FULL + num_runs)
    name = f"tokens_{plain.backend}_{size}"
    base = measured(f"{name}_us", "µs CPU", scratch)
    return [
        base,
        measured(f"{name}_first_us", "µs CPU", first[NUM_FULL:], base),
        measured(f"{name}_growing_us", "µs CPU", later[NUM_FULL:], base),
    ]


def render_row(size: str, num_runs: int) -> Measurement:
    """What comes before."""
    bodies = [{"messages": turns(SIZES[size], seed)} for seed in range(num_runs)]
    runs = [cpu_us(partial(MODEL.render_chat, body)) for body in bodies]
    return measured(f"render_{size}_us", "µs CPU", runs)


def key_rows(block_size: int, num_runs: int) -> list[Measurement]:
    """Block keys of 50,000 tokens and 500 more: from scratch, and with a memo that has seen all but those."""
    rng = random.Random(block_size)
    scratch: list[float] = []
    growing: list[float] = []
    memo = KeyMemo(MEMO_BYTES)
    for _ in range(NUM_FULL + num_runs):
        tokens = TokenBytes(rng.randbytes(4 * 50_500))
        memo.hashed(TokenBytes(tokens[: 4 * 50_000]), block_size, is_eagle=False)
        growing.append(cpu_us(partial(memo.hashed, tokens, block_size, is_eagle=False)))
        scratch.append(cpu_us(partial(block_keys, tokens, block_size)))
    base = measured(f"keys_{block_size}_200k_us", "µs CPU", scratch)
    return [
        base,
        measured(f"keys_{block_size}_200k_growing_us", "µs CPU", growing[NUM_FULL:], base),
    ]


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_runs = 15 if quick else 50
    rows = [render_row(size, num_runs) for size in SIZES]
    for choice in (TokenizerChoice.AUTO, TokenizerChoice.HF):
        for size in SIZES:
            rows += rows_of(choice, size, num_runs if choice is TokenizerChoice.AUTO else 5)
    for block_size in (16, 64):
        rows += key_rows(block_size, num_runs)
    return rows


if __name__ == "__main__":
    main("Prompts", run)
