"""``kvroute worker``: one simulated engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from typer.models import OptionInfo

from kvroute.logs import LogLevel, set_up_logging
from kvroute.running import fail, listen_words, refuse, run_service
from kvroute.usage_faults import flag_complaints
from prompt import PromptModelError
from worker.blocks import VllmRelease
from worker.config import SpeculativeAlgorithm, WorkerConfig
from worker.flavour import Flavour
from worker.prefetch import PrefetchPolicy
from worker.service import StorageUnusableError, serve_worker
from worker.tree import HashFormat, HostMode, WritePolicy


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker")(worker)


def _flag(field: str, says: str) -> OptionInfo:
    """An option that fills the field of the configuration, whose default it tells."""
    default = WorkerConfig.model_fields[field].default
    shown: OptionInfo = typer.Option(
        help=says if default is None else f"{says} [default: {default}]"
    )
    return shown


def worker(
    context: typer.Context,
    *,
    engine: Annotated[
        Flavour | None, _flag("engine", "Whose cache, schedule, events and HTTP it has.")
    ] = None,
    host: Annotated[str | None, _flag("host", "Address to bind.")] = None,
    port: Annotated[int | None, _flag("port", "Of HTTP; 0 = chosen.")] = None,
    model_name: Annotated[str | None, _flag("model_name", "The name requests use.")] = None,
    tokenizer: Annotated[
        Path | None, _flag("tokenizer", "Directory of tokenizer and template. [default: bundled]")
    ] = None,
    page_size: Annotated[
        int | None, _flag("page_size", "Tokens a page, the block of the events.")
    ] = None,
    gpu_tokens: Annotated[int | None, _flag("gpu_tokens", "Tokens of GPU cache.")] = None,
    host_tokens: Annotated[
        int | None, _flag("host_tokens", "Tokens of pinned host cache; 0 = no host tier.")
    ] = None,
    storage: Annotated[
        str | None,
        _flag("storage", "L3: none, memory, or shared by workers: dir:PATH, mooncake://HOST:PORT."),
    ] = None,
    write_policy: Annotated[
        WritePolicy | None, _flag("write_policy", "When GPU pages are copied to host.")
    ] = None,
    prefetch_threshold: Annotated[
        int | None, _flag("prefetch_threshold", "Fewer stored tokens than this are not fetched.")
    ] = None,
    prefetch_policy: Annotated[
        PrefetchPolicy | None, _flag("prefetch_policy", "How long a request waits for its fetch.")
    ] = None,
    events_port: Annotated[
        int | None, _flag("events_port", "Publisher of rank 0; 0 = chosen.")
    ] = None,
    replay_port: Annotated[
        int | None, _flag("replay_port", "Replay socket of rank 0; 0 = chosen.")
    ] = None,
    no_events: Annotated[bool, typer.Option("--no-events", help="Publish nothing.")] = False,
    no_replay: Annotated[bool, typer.Option("--no-replay", help="No replay socket.")] = False,
    mute_refill_events: Annotated[
        bool,
        typer.Option("--mute-refill-events", help="Leave out the events of refills from storage."),
    ] = False,
    hicache_host_memory_mode: Annotated[
        HostMode | None,
        _flag("hicache_host_memory_mode", "Host memory keeps pages, or only stages them."),
    ] = None,
    speculative_algorithm: Annotated[
        SpeculativeAlgorithm | None,
        _flag("speculative_algorithm", "Pages and events of token pairs. [default: of tokens]"),
    ] = None,
    kv_events_format: Annotated[
        HashFormat | None, _flag("kv_events_format", "Of SGLang's hashes on the wire.")
    ] = None,
    lora_paths: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="A LoRA adapter of SGLang, by its name; repeat."),
    ] = None,
    release: Annotated[
        VllmRelease | None, _flag("release", "Of vLLM: what its events and replays look like.")
    ] = None,
    byte_hashes: Annotated[
        bool, typer.Option("--byte-hashes", help="vLLM publishes hashes as 32 bytes.")
    ] = False,
    offload_tokens: Annotated[
        int | None, _flag("offload_tokens", "Tokens of vLLM's CPU offload. [default: none]")
    ] = None,
    offload_blocks: Annotated[
        int | None, _flag("offload_blocks", "Blocks that are offloaded together.")
    ] = None,
    self_describing_offload: Annotated[
        bool,
        typer.Option("--self-describing-offload", help="Offload events name blocks and tokens."),
    ] = False,
    dp_size: Annotated[
        int | None, _flag("dp_size", "Data-parallel ranks, each with a cache of its own.")
    ] = None,
    max_running: Annotated[
        int | None, _flag("max_running", "Requests in a decode batch, a rank.")
    ] = None,
    speed: Annotated[
        float | None, _flag("speed", "Engine seconds in a second of wall time.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged.")] = LogLevel.INFO,
) -> None:
    """Run one simulated engine, SGLang or vLLM: OpenAI HTTP, KV events, and a cache of several tiers."""
    config = worker_config(context.params)
    set_up_logging(log_level)
    try:
        run_service(serve_worker(config))
    except PromptModelError as error:
        refuse(f"--tokenizer: {error}")
    except StorageUnusableError as error:
        refuse(f"--storage: {error}")
    except OSError as error:
        fail(listen_words(config.host, config.port, error))


def worker_config(flags: Mapping[str, object]) -> WorkerConfig:
    """The configuration that the given flags make; flags that are None keep the defaults.

    Raises:
        typer.Exit: with 2, a field is wrong; it is named.
    """
    given = {
        name: value
        for name, value in flags.items()
        if name in WorkerConfig.model_fields and value is not None
    }
    if flags.get("no_events"):
        given["events_port"] = None
    if flags.get("no_replay"):
        given["replay_port"] = None
    if given.get("host_tokens") == 0:
        given["host_tokens"] = None
    try:
        return WorkerConfig.model_validate(given)
    except ValidationError as error:
        refuse(flag_complaints(error))
