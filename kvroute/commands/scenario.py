"""``kvroute scenario``: stories told on real processes and sockets, with what they must show."""

from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from kvroute.output import JsonFile, console_beside, progress, write_json
from kvroute.running import fail, refuse, run
from loadgen import ChildError, ControlPortError, SpecError, Vocabulary
from loadgen.refill import (
    RefillRun,
    RefillSpec,
    Requirements,
    StoryError,
    refill_table,
    shortfalls,
    tell,
)
from prompt import BUNDLED_MODEL_NAME, PromptModel, bundled_model_dir

_SIZES = RefillSpec()
_FLAGS = {
    "num_workers": "--workers",
    "num_prefixes": "--prefixes",
    "prefix_blocks": "--prefix-blocks",
    "page_size": "--page-size",
    "gpu_prefixes": "--gpu-prefixes",
    "host_prefixes": "--host-prefixes",
    "decisions": "--decisions",
    "engine_speed": "--engine-speed",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    scenario = typer.Typer(no_args_is_help=True)

    @scenario.callback()
    def _scenario() -> None:
        """Tell a story on this machine and check what it must show."""

    scenario.command("refill")(refill)
    app.add_typer(scenario, name="scenario")


def refill(
    *,
    workers: Annotated[int, typer.Option(max=64, help="Simulated engines.")] = _SIZES.num_workers,
    prefixes: Annotated[
        int, typer.Option(help="Distinct prefixes; a multiple of the workers.")
    ] = _SIZES.num_prefixes,
    prefix_blocks: Annotated[
        int, typer.Option(help="Whole blocks of each prefix.")
    ] = _SIZES.prefix_blocks,
    page_size: Annotated[int, typer.Option(help="Tokens a block.")] = _SIZES.page_size,
    gpu_prefixes: Annotated[
        int, typer.Option(help="Prefixes that fit on each GPU.")
    ] = _SIZES.gpu_prefixes,
    host_prefixes: Annotated[
        int, typer.Option(help="Prefixes that fit in each host pool.")
    ] = _SIZES.host_prefixes,
    decisions: Annotated[int, typer.Option(help="Requests through the router.")] = _SIZES.decisions,
    engine_speed: Annotated[
        float, typer.Option(help="Engine seconds a second.")
    ] = _SIZES.engine_speed,
    json_file: JsonFile = None,
) -> None:
    """Prefixes come back from storage into host memory: once announced, once not.

    Pool pressure from traffic alone drives prefixes out of GPU and host; they return from storage and are
    asked for through the router, whose claims are compared with what the workers truly hold. With the
    refills muted the router must survive the gap and name it. Ends with 1 where the story does not hold.
    """
    try:
        spec = RefillSpec(
            num_workers=workers,
            page_size=page_size,
            num_prefixes=prefixes,
            prefix_blocks=prefix_blocks,
            gpu_prefixes=gpu_prefixes,
            host_prefixes=host_prefixes,
            decisions=decisions,
            engine_speed=engine_speed,
        )
    except SpecError as error:
        refuse(f"{_FLAGS.get(error.field, error.field)}: {error.what}")
    vocabulary = Vocabulary(PromptModel.load(bundled_model_dir()))
    try:
        runs = run(_tell_both(spec, vocabulary.token_ids))
    except (ChildError, ControlPortError, StoryError) as error:
        fail(error)
    console_beside(json_file).print(refill_table(runs, spec))
    write_json(json_file, {name: one.to_json() for name, one in runs.items()})
    short = shortfalls(runs["announced"], runs["muted"], Requirements.of(spec))
    if short:
        fail("the story does not hold\n  " + "\n  ".join(short))


async def _tell_both(spec: RefillSpec, token_ids: tuple[int, ...]) -> dict[str, RefillRun]:
    with progress() as bars:
        return {
            name: await tell(
                spec,
                token_ids,
                BUNDLED_MODEL_NAME,
                is_muted=name == "muted",
                on_step=StageBars(bars, name),
            )
            for name in ("announced", "muted")
        }


class StageBars:
    """One bar a stage, shown from its first step on."""

    def __init__(self, bars: Progress, name: str) -> None:
        self._bars = bars
        self._name = name
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(f"{self._name}: {stage}", total=total)
        self._bars.update(self._tasks[stage], completed=done)
