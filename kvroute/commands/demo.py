"""``kvroute demo``: a fleet on this machine, one workload, routing policies side by side."""

from typing import Annotated

import typer

from kvroute.output import JsonFile, console_beside, progress, write_json
from kvroute.running import fail, refuse, run
from loadgen import (
    Answer,
    ChildError,
    ComparisonSpec,
    ControlPortError,
    PolicyRun,
    SpecError,
    TimedRequest,
    Vocabulary,
    WorkloadSpec,
    compare,
    comparison_table,
    synthesise,
    verdict,
)
from prompt import BUNDLED_MODEL_NAME, PromptModel, bundled_model_dir
from scoring import PolicyName

POLICIES = (PolicyName.ROUND_ROBIN, PolicyName.COST)
_POLICIES_A_TABLE = 4  # as wide as a terminal
_FLEET, _WORKLOAD = ComparisonSpec(), WorkloadSpec()
_FLAGS = {"num_requests": "--requests", "duration_s": "--duration-s", "think_s": "--think-s"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    *,
    policy: Annotated[
        list[PolicyName] | None,
        typer.Option(help="Repeat for each to be compared, in order. [default: round_robin, cost]"),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Simulated engines.")
    ] = _FLEET.num_workers,
    requests: Annotated[
        int, typer.Option(min=1, help="Requests under each policy.")
    ] = _WORKLOAD.num_requests,
    duration_s: Annotated[
        float, typer.Option(help="Seconds over which chats start.")
    ] = _WORKLOAD.duration_s,
    think_s: Annotated[
        float, typer.Option(help="Mean seconds between the turns of a chat.")
    ] = _WORKLOAD.think_s,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Run one workload under several policies, each from cold caches, and compare.

    Real processes and sockets: simulated engines that publish KV events, and the router in front of them.
    Chats of several turns, shared system prompts, bursts over one document; the engines' pools are small,
    so that prefixes are found on GPU and in pinned host memory. Turns of a chat name it as their user.
    """
    try:
        spec = WorkloadSpec(num_requests=requests, duration_s=duration_s, think_s=think_s)
    except SpecError as error:
        refuse(f"{_FLAGS.get(error.field, error.field)}: {error.what}")
    vocabulary = Vocabulary(PromptModel.load(bundled_model_dir()))
    workload = synthesise(spec, vocabulary.words, BUNDLED_MODEL_NAME, seed=seed)
    policies = [name.value for name in dict.fromkeys(policy or POLICIES)]
    try:
        runs = run(_with_progress(policies, ComparisonSpec(num_workers=workers), workload))
    except (ChildError, ControlPortError) as error:
        fail(error)
    console = console_beside(json_file)
    for first in range(0, len(policies), _POLICIES_A_TABLE):
        shown = policies[first : first + _POLICIES_A_TABLE]
        console.print(comparison_table({name: runs[name] for name in shown}))
    if len(runs) > 1:
        console.print(verdict(runs), highlight=False)
    write_json(json_file, {"policies": {name: one.to_json() for name, one in runs.items()}})
    errors = sum(one.load.errors for one in runs.values())
    if errors:
        fail(f"{errors} requests failed")


async def _with_progress(
    policies: list[str], spec: ComparisonSpec, workload: list[TimedRequest]
) -> dict[str, PolicyRun]:
    with progress() as bars:
        tasks = {
            policy: bars.add_task(policy, start=False, total=len(workload)) for policy in policies
        }

        def on_start(policy: str) -> None:
            bars.start_task(tasks[policy])

        def on_answer(policy: str, _: Answer) -> None:
            bars.advance(tasks[policy])

        return await compare(policies, spec, workload, on_start=on_start, on_answer=on_answer)
