"""What only shows when workers are laid side by side. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kvroute.doctor.check import Check, CheckName, fault, ok, warning
from kvroute.doctor.report import Report
from protocol import WorkerSpec
from router.plain_text import plain


def fleet_checks(reports: Sequence[Report]) -> Iterator[Check]:
    """Over all workers that describe themselves; nothing of a single one but its model."""
    specs = [one.spec for one in reports if one.spec is not None]
    if len(specs) < 2:
        return
    yield from _shared_endpoints(specs)
    yield from _models(specs)


def _shared_endpoints(specs: Sequence[WorkerSpec]) -> Iterator[Check]:
    """Two workers at one event port: one of them is heard in the other's place."""
    owners: dict[str, list[str]] = defaultdict(list)
    for spec in specs:
        for source in spec.sources:
            owners[source.endpoint].append(f"{spec.worker}/{source.rank.dp_rank}")
    shared = {endpoint: names for endpoint, names in owners.items() if len(names) > 1}
    for endpoint, names in shared.items():
        yield fault(
            CheckName.PUBLISHERS,
            f"{', '.join(names)} all name {endpoint}: one is heard in the others' place",
            "--kv-events-config: a port range of its own for every engine on a host",
        )


def _models(specs: Sequence[WorkerSpec]) -> Iterator[Check]:
    by_model: dict[str, list[WorkerSpec]] = defaultdict(list)
    for spec in specs:
        by_model[spec.model].append(spec)
    shown = ", ".join(f"{plain(model)} ({len(of)})" for model, of in sorted(by_model.items()))
    yield from _same_path(by_model)
    for model, of in sorted(by_model.items()):
        yield from _differences(plain(model), of)
    yield ok(CheckName.MODEL, f"models by number of workers: {shown}")


def _same_path(by_model: dict[str, list[WorkerSpec]]) -> Iterator[Check]:
    """One model under two names: requests for one never go to the other's workers."""
    names: dict[str, set[str]] = defaultdict(set)
    for model, of in by_model.items():
        for spec in of:
            if spec.tokenizer:
                names[spec.tokenizer].add(model)
    for path, models in sorted(names.items()):
        if len(models) > 1:
            shown = ", ".join(map(plain, sorted(models)))
            yield warning(
                CheckName.MODEL,
                f"{plain(path)} is served under several names: {shown}",
                "--served-model-name: the same on every worker",
            )


def _differences(model: str, specs: Sequence[WorkerSpec]) -> Iterator[Check]:
    for what, values, change in (
        ("block sizes", {spec.block_size for spec in specs}, "--page-size (vLLM: --block-size)"),
        ("context lengths", {spec.max_model_len for spec in specs}, "--context-length"),
        ("tokenizers", {spec.tokenizer for spec in specs}, "--tokenizer-path"),
        ("versions", {f"{spec.engine} {spec.version}" for spec in specs}, ""),
    ):
        if len(values) > 1:
            shown = ", ".join(sorted(plain(str(value)) for value in values))
            yield warning(CheckName.MODEL, f"{model}: workers of several {what}: {shown}", change)
