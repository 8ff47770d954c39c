"""``kvroute explain``: where a request would go and why, asked of a running router; nothing is booked."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import httpx
import orjson
import typer
from pydantic import ValidationError
from rich.console import Console

from kvroute.decision_table import decision_table, reading
from kvroute.output import JsonFile, console_beside, write_json
from kvroute.running import fail, refuse
from loadgen import DecisionView


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    prompt: Annotated[
        str | None, typer.Argument(help="A prompt, sent as one chat message.")
    ] = None,
    *,
    control_url: Annotated[
        str, typer.Option("--control-url", help="The router's control port.")
    ] = "http://127.0.0.1:8081",
    body: Annotated[
        Path | None, typer.Option(help="A whole request as JSON instead; - = stdin.")
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="chat, completions or generate; default: seen in the body.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model to name with a prompt.")] = None,
    token: Annotated[
        str | None, typer.Option(envvar="KVROUTE_CONTROL_TOKEN", help="Of the control port.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Show each candidate's blocks by tier, its load, its cost term by term, and what was chosen."""
    request = _body(prompt, body, model)
    decision = _ask(control_url.rstrip("/"), request, api, token)
    _show(console_beside(json_file), decision)
    write_json(json_file, decision)


def _body(prompt: str | None, body: Path | None, model: str | None) -> bytes:
    if (prompt is None) == (body is None):
        refuse("give either a PROMPT or --body FILE")
    if prompt is not None:
        named = {} if model is None else {"model": model}
        return orjson.dumps(named | {"messages": [{"role": "user", "content": prompt}]})
    assert body is not None
    try:
        return sys.stdin.buffer.read() if str(body) == "-" else body.read_bytes()
    except OSError as error:
        refuse(f"--body: {error}")


def _ask(url: str, request: bytes, api: str | None, token: str | None) -> dict[str, object]:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    parameters = {} if api is None else {"api": api}
    try:
        response = httpx.post(
            f"{url}/debug/route", content=request, params=parameters, headers=headers, timeout=30.0
        )
        answer = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        fail(f"{url}/debug/route: {error or type(error).__name__}")
    if not isinstance(answer, dict) or response.is_error:
        fail(f"{url}/debug/route answers {response.status_code}: {response.text[:300]}")
    return answer


def _show(console: Console, decision: Mapping[str, object]) -> None:
    try:
        view = DecisionView.model_validate(decision)
    except ValidationError as error:
        fail(f"the router's answer is no decision: {error.errors()[0]['loc']}")
    console.print(decision_table(view))
    console.print(reading(view))
