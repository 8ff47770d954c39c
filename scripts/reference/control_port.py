"""Reference of the control port, read from the application's OpenAPI description."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prompt import Api
from router.control_app import ControlParts, control_api
from router.fleet_debug import FleetDebug
from router.prompt_reader import PromptReader
from router.shelf import PromptShelf
from scripts.reference.empty_router import empty_router
from scripts.reference.markdown import code, page, prose, table

_WHO = (
    "Loopback unless [`control_host`](configuration.md) says otherwise. Where a control token is set, every "
    "route below but `/health` and `/ready` wants it: `Authorization: Bearer TOKEN`. Without one they are for this "
    "machine: what a browser sends for a page of another origin, or to a name but `localhost`, is refused. `/openapi.json` describes "
    "bodies and answers field by field; [read a decision](../how-to/read-a-decision.md) says what decisions mean. "
    "`/query` and `/query_by_hash`: [prefix queries](queries.md)."
)
_NAMES = "A worker's id is its `name`, or host and port of its URL."


def control_port() -> str:
    """The page."""
    paths: dict[str, dict[str, Any]] = _openapi()["paths"]
    rows = [
        (code(f"{method.upper()} {path}"), _parameters(described), prose(described["description"]))
        for path, methods in paths.items()
        for method, described in methods.items()
    ]
    apis = ", ".join(code(api) for api in Api)
    note = f"`api` is one of {apis}; without it the body tells: `messages` → chat, `prompt` → completions, `text` or `input_ids` → generate."
    return page("Control port", _WHO, _NAMES, table(("route", "parameters", "answer"), rows), note)


def _openapi() -> dict[str, Any]:
    sources = empty_router()
    shelf = PromptShelf({})
    with ThreadPoolExecutor(1) as executor:
        fleet = FleetDebug(sources.registry, sources.index, sources.intake, sources.planner, shelf)
        reader = PromptReader(shelf, executor, sources.data)
        return control_api(
            ControlParts(fleet, sources, reader, executor, workers_changed=_nothing)
        ).openapi()


def _nothing() -> None:
    """There is nobody to tell."""


def _parameters(described: dict[str, Any]) -> str:
    query = [one for one in described.get("parameters", ()) if one["in"] == "query"]
    names = [code(f"?{one['name']}=") for one in query]
    body = described.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        names.append(f"body `{schema.get('title') or schema['$ref'].rpartition('/')[2]}`")
    return ", ".join(names)
