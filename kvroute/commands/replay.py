"""``kvroute replay``: open-loop load from a trace."""

import math
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import httpx
import typer

from kvroute.base_url import base_url, connection_words, system_trust
from kvroute.output import JsonFile, console_beside, progress, write_json
from kvroute.running import fail, refuse, run
from loadgen import (
    Answer,
    BlockSynthesis,
    OnBadLine,
    PromptForm,
    ReplayOptions,
    SynthesisError,
    TimedRequest,
    Trace,
    TraceError,
    TraceRequests,
    Vocabulary,
    error_lines,
    load_trace,
    replay,
    run_table,
    summarise,
)
from prompt import PromptModel, PromptModelError, bundled_model_dir
from router.causes import cause_of

_MODELS_S = 10.0
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay_trace)


def replay_trace(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="JSON lines in Mooncake's format.")
    ],
    *,
    url: Annotated[str, typer.Option(help="Base URL of the server.")],
    model: Annotated[
        str | None, typer.Option(help="The model to name. [default: the server's first]")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="Sent with each request; repeat for each."),
    ] = None,
    form: Annotated[
        PromptForm,
        typer.Option(help="How prompts are sent; tokens and generate are exact to the block"),
    ] = PromptForm.TOKENS,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Directory of the model's tokenizer. [default: bundled]")
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens a hash id stands for.")] = 512,
    seed: Annotated[int, typer.Option(help="Another seed makes other prompts.")] = 0,
    speed: Annotated[float, typer.Option(help="2 sends the trace in half its time.")] = 1.0,
    max_requests: Annotated[int | None, typer.Option(min=1, help="Send the first ones.")] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option(min=1, help="Cut longer answers to this.")
    ] = None,
    on_bad_line: Annotated[
        OnBadLine, typer.Option(help="Stop at a bad line, or skip and count it.")
    ] = OnBadLine.FAIL,
    timeout_s: Annotated[float, typer.Option(help="Seconds for one whole request.")] = 600.0,
    max_in_flight: Annotated[
        int,
        typer.Option(min=1, help="Requests under way; one that is due beyond it is an error."),
    ] = 1024,
    json_file: JsonFile = None,
) -> None:
    """Send a trace over HTTP, each request at its time, and report times, reuse and errors.

    Ends with 1 if any request failed, or there is none.
    """
    if not (0 < speed < math.inf and 0 < timeout_s < math.inf):
        refuse("--speed and --timeout-s are numbers above 0")
    url, headers = base_url("--url", url), _headers(header or [])
    read = _load(trace, block_size, on_bad_line, max_requests)
    if not read.records:
        fail(f"{trace}: there is no request in it, {sum(read.skipped.values())} lines were skipped")
    model = _model(url, headers, model)
    requests = _requests(model, tokenizer, form, block_size, seed, max_output_tokens)
    options = ReplayOptions(url, speed, timeout_s, max_in_flight, headers)
    start = time.perf_counter()
    try:
        answers = run(_with_progress(requests.of(read.records), options, len(read.records)))
    except SynthesisError as error:
        fail(f"{error}; --form tokens sends ids")
    report = summarise(answers, time.perf_counter() - start)
    console_beside(json_file).print(run_table(trace.name, report))
    write_json(json_file, report.to_json() | {"skipped_lines": dict(read.skipped)})
    if report.errors:
        failed = f"{report.errors} of {report.requests} requests failed; of each kind the first"
        fail("\n  ".join((failed, *error_lines(report))))


def _load(path: Path, block_size: int, on_bad_line: OnBadLine, max_requests: int | None) -> Trace:
    try:
        return load_trace(
            path, block_size=block_size, on_bad_line=on_bad_line, max_records=max_requests
        )
    except TraceError as error:
        refuse(f"TRACE: {path}: {error}")
    except OSError as error:
        refuse(f"TRACE: {path}: {cause_of(error)}")


def _requests(
    model: str,
    tokenizer: Path | None,
    form: PromptForm,
    block_size: int,
    seed: int,
    max_output_tokens: int | None,
) -> TraceRequests:
    try:
        vocabulary = Vocabulary(PromptModel.load(tokenizer or bundled_model_dir()))
        synthesis = BlockSynthesis(vocabulary.token_ids, block_size=block_size, seed=seed)
    except (PromptModelError, SynthesisError) as error:
        refuse(f"--tokenizer: {error}")
    except ValueError as error:
        refuse(f"--block-size: {error}")
    return TraceRequests(model, vocabulary, synthesis, form, max_output_tokens)


def _headers(given: list[str]) -> tuple[tuple[str, str], ...]:
    """Names and values. A bad one is not repeated in the refusal: it may hold a key."""
    headers = []
    for number, one in enumerate(given, start=1):
        name, colon, value = (part.strip() for part in one.partition(":"))
        if not (colon and _HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
            refuse(f"--header: number {number} is not NAME:VALUE")
        headers.append((name, value))
    return tuple(headers)


def _model(url: str, headers: Sequence[tuple[str, str]], given: str | None) -> str:
    """The model to name: the given one, or the server's first. Either way the server must be there."""
    path = f"{url}/v1/models"
    try:
        response = httpx.get(path, headers=list(headers), timeout=_MODELS_S, verify=system_trust())
    except httpx.HTTPError as error:
        fail(connection_words(url, error))
    if given is not None:
        return given
    if response.is_error:
        fail(
            f"{path} answers {response.status_code}: is this the server's base URL? Else give --model"
        )
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        fail(f"{path} names no model: give --model")


async def _with_progress(
    requests: Iterable[TimedRequest], options: ReplayOptions, total: int
) -> list[Answer]:
    with progress() as bars:
        bar = bars.add_task("replay", total=total)
        return await replay(requests, options, on_answer=lambda _: bars.advance(bar))
