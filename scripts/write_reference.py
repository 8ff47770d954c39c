"""Write the pages under ``docs/reference/`` that are made from code.

    python -m scripts.write_reference

A test holds the committed pages against what this writes.
"""

from collections.abc import Mapping
from pathlib import Path

from kvroute.commands.worker import worker
from router.config import RouterConfig
from scripts.reference.command_line import command_line, fields_with_flag
from scripts.reference.control_port import control_port
from scripts.reference.findings import findings
from scripts.reference.limits import limits
from scripts.reference.markdown import code, page
from scripts.reference.metrics import metrics
from scripts.reference.queries import queries
from scripts.reference.settings import settings
from worker.config import WorkerConfig
from worker.flavour import OWN_FIELDS

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def pages() -> Mapping[str, str]:
    """File name → content."""
    return {
        "configuration.md": _configuration(),
        "worker.md": _worker(),
        "command-line.md": command_line(),
        "control-port.md": control_port(),
        "queries.md": queries(),
        "metrics.md": metrics(),
        "findings.md": findings(),
        "bounds.md": limits(),
    }


def main() -> None:
    """Write every page."""
    for name, content in pages().items():
        (REFERENCE / name).write_text(content, encoding="utf-8")
        print(f"docs/reference/{name}")


def _configuration() -> str:
    return page(
        "Configuration of the router",
        "`kvroute serve` takes each field from its flag, else from the environment, else from the YAML file "
        "of `--config`, else from the default. A variable is named after the path of its field: `limits.max_in_flight` "
        "is `KVROUTE_LIMITS__MAX_IN_FLIGHT`; lists may be comma separated. An unknown field or a bad value "
        "ends the command with 2 and names the path.",
        "A file: see [in front of SGLang](../how-to/sglang.md) and [in front of vLLM](../how-to/vllm.md).",
        *settings(RouterConfig),
    )


def _worker() -> str:
    flags = set(fields_with_flag(worker))
    without = ", ".join(code(name) for name in WorkerConfig.model_fields if name not in flags)
    return page(
        "Configuration of the simulated worker",
        "`kvroute worker` takes a field from the [flag](command-line.md#kvroute-worker) of its name: "
        "`gpu_tokens` from `--gpu-tokens`. Sizes are tokens; times are seconds of the engine's own clock, "
        "which runs `speed` times as fast as the wall's, unless they say otherwise.",
        f"No flag sets {without}: they are for fleets that are built from Python.",
        "It speaks its engine's HTTP, so that a router takes it for that engine. Both have `/v1/chat/completions`, "
        "`/v1/completions`, `/tokenize`, `/detokenize`, `/v1/models`, `/health`, `/metrics`, `/openapi.json`, and "
        "`/debug/residency` (what each tier truly holds). Any route that is not there is answered 404 with an error in OpenAI's form.",
        "SGLang alone: `/generate`, `/server_info`, `/get_server_info`, `/model_info`, `/get_model_info`, "
        "`/health_generate`, `/flush_cache`.",
        "vLLM alone: `/version` (which tells, in `kvroute_worker`, that it is simulated, as SGLang's `/server_info` does), "
        "`/kv_event_sources` (release 0.32), `/ping`, `/load`, `/reset_prefix_cache` (`reset_external`: the CPU tier "
        "too; refused with `false` while there are requests), `/is_sleeping`, `/sleep` (`level`), `/wake_up`, `/is_paused`, `/pause`, "
        "`/resume`. Asleep or paused, requests wait, and the caches are emptied if no request uses them.",
        "A field that means nothing to the engine is refused by name: "
        + "; ".join(
            f"{flavour} alone has {', '.join(map(code, names))}"
            for flavour, names in OWN_FIELDS.items()
        )
        + ".",
        *settings(WorkerConfig),
    )


if __name__ == "__main__":
    main()
