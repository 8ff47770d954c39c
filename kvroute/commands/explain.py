"""``kvroute explain``: where a request would go and why, asked of a running router; nothing is booked."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import orjson
import typer
from pydantic import ValidationError
from rich.console import Console

from kvroute.base_url import base_url, connection_words, system_trust
from kvroute.decision_table import caption, decision_tables, reading
from kvroute.fleet_notes import WORKER_NOTES, WorkerNote, absences, served
from kvroute.output import JsonFile, console_beside, write_json
from kvroute.refusal import refusal_words
from kvroute.running import fail, refuse
from kvroute.token_flags import ControlToken
from loadgen import DecisionView
from protocol.fault_words import first_fault
from router.causes import cause_of
from scoring import Exclusion

_HINTS = {
    401: "; give it with --token or in KVROUTE_CONTROL_TOKEN",
    404: "; is this the control port (8081)?",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="A prompt, sent as one chat message.")
    ] = None,
    *,
    control_url: Annotated[
        str, typer.Option("--control-url", help="The router's control port.")
    ] = "http://127.0.0.1:8081",
    body: Annotated[
        Path | None, typer.Option(help="A whole request as JSON instead; - = stdin.")
    ] = None,
    api: Annotated[
        str | None,
        typer.Option(
            help="chat, completions, generate, responses or messages. [default: seen in the body]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model to name with a prompt.")] = None,
    token: ControlToken = None,
    json_file: JsonFile = None,
) -> None:
    """Show each candidate's blocks by tier, its load, its cost term by term, and what was chosen."""
    request = _body(prompt, body, model)
    router = _Router(base_url("--control-url", control_url), token)
    decision = router.dry_run(request, api)
    view = _view(decision)
    notes = router.workers()
    write_json(json_file, decision)
    names = served(notes)
    if Exclusion.OTHER_MODEL in view.excluded and view.chosen is None and view.model not in names:
        fail(f"No worker serves the model {view.model!r} (served: {', '.join(names) or 'none'})")
    _show(console_beside(json_file), view, notes)


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
        refuse(f"--body: {body}: {cause_of(error)}")


@dataclass(frozen=True, slots=True)
class _Router:
    """A router's control port. What goes wrong ends the command with 1."""

    url: str
    token: str | None

    def dry_run(self, request: bytes, api: str | None) -> dict[str, object]:
        """The decision on a request."""
        answer = self._call("POST", "/debug/route", request, {} if api is None else {"api": api})
        if not isinstance(answer, dict):
            fail("the router's answer is no decision")
        return answer

    def workers(self) -> list[WorkerNote]:
        """Every worker in short."""
        try:
            return WORKER_NOTES.validate_python(self._call("GET", "/debug/workers"))
        except ValidationError as error:
            fail(f"{self.url}/debug/workers: {first_fault(error)}")

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> object:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        url = self.url + path
        try:
            response = httpx.request(
                method,
                url,
                content=body,
                params=parameters,
                headers=headers,
                timeout=30.0,
                verify=system_trust(),
            )
        except httpx.HTTPError as error:
            fail(connection_words(self.url, error))
        if response.is_error:
            hint = _HINTS.get(response.status_code, "")
            words = refusal_words(response.content).rstrip(".")
            fail(f"{url} answers {response.status_code}: {words}{hint}")
        try:
            answer: object = response.json()
        except ValueError as error:
            fail(f"{url}: {error}")
        return answer


def _view(decision: Mapping[str, object]) -> DecisionView:
    try:
        return DecisionView.model_validate(decision)
    except ValidationError as error:
        fail(f"the router's answer is no decision: {first_fault(error)}")


def _show(console: Console, decision: DecisionView, notes: Sequence[WorkerNote]) -> None:
    for table in decision_tables(decision, console.width):
        console.print(table)
    console.print(caption(decision), style="dim", highlight=False)
    console.print(reading(decision), markup=False)
    for line in absences(notes):
        console.print(f"not serving: {line}", markup=False)
