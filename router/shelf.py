"""Prompt models by the names that requests use, each with the rung of the ladder it stands on.

    configured   ``tokenizers`` names a directory
    engine       the directory that the engine names, if it is here and loads
    hub          the model that the engine names, from a local hub cache
    none         requests of this model go by load alone; the reason is shown

A request is tokenized before it is known which worker takes it, so it has tokens only where all engines
that serve its model would make the same ones.

Loading takes up to seconds and happens in a thread; lookups see one consistent snapshot.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from prompt import (
    GivenIds,
    PromptModel,
    PromptModelError,
    PromptModels,
    TokenizerChoice,
    TokenMemo,
    hub_snapshot,
)
from protocol import EngineKind, WorkerSpec


class Rung(StrEnum):
    """Where a model's tokenizer comes from."""

    CONFIGURED = "configured"
    ENGINE = "engine"
    HUB = "hub"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Shelved:
    """What is known of one model's tokenizer. ``detail`` says why there is none."""

    rung: Rung
    model: PromptModel | None = None
    directory: str | None = None
    detail: str | None = None


class PromptShelf:
    """Holds at most as many models as ``PromptModels`` allows; further ones have none, and say so."""

    def __init__(
        self,
        configured: Mapping[str, Path],
        tokenizer_backend: TokenizerChoice = TokenizerChoice.AUTO,
        *,
        hub_cache: Path | None = None,
        memo: TokenMemo | None = None,
    ) -> None:
        """``hub_cache``: where models are looked for by their hub id; None for nowhere."""
        self._configured = dict(configured)
        self._hub_cache = hub_cache
        self._models = PromptModels(tokenizer=tokenizer_backend, memo=memo)
        self._shelved: dict[str, Shelved] = {}
        self._by_name: dict[str | None, PromptModel | GivenIds] = {}

    def load(self, spec: WorkerSpec) -> Shelved:
        """Find and load the worker's tokenizer; blocks for seconds at worst. Changes nothing that is seen."""
        for name in (spec.model, *spec.aliases):
            if name in self._configured:
                return self._try(Rung.CONFIGURED, spec.model, self._configured[name])
        if spec.tokenizer is None:
            return Shelved(Rung.NONE, detail="the engine names no tokenizer")
        directory = Path(spec.tokenizer)
        if _is_directory(directory):
            return self._try(Rung.ENGINE, spec.model, directory)
        snapshot = (
            None if self._hub_cache is None else hub_snapshot(self._hub_cache, spec.tokenizer)
        )
        if snapshot is not None:
            return self._try(Rung.HUB, spec.model, snapshot)
        where = "" if self._hub_cache is None else ", and no model in the hub cache"
        return Shelved(Rung.NONE, detail=f"{spec.tokenizer} is no directory here{where}")

    def put(self, spec: WorkerSpec, shelved: Shelved) -> None:
        """What ``load`` found; a model that another worker brought stays if this one brings none."""
        known = self._shelved.get(spec.model)
        if known is None or shelved.model is not None or known.model is None:
            self._shelved[spec.model] = shelved

    def keep(self, specs: Iterable[WorkerSpec]) -> None:
        """These are all workers: names are served as they say, models of no worker are dropped.

        O(workers × names).
        """
        specs = list(specs)
        by_name: dict[str | None, PromptModel | GivenIds] = {}
        engines: dict[str, set[EngineKind]] = {}
        for spec in specs:
            engines.setdefault(spec.model, set()).add(spec.engine)
        models = {model: self._for_engines(model, kinds) for model, kinds in engines.items()}
        for spec in specs:
            for name in (spec.model, *spec.aliases, *spec.adapters):
                by_name.setdefault(name, models[spec.model])
        self._shelved = {name: one for name, one in self._shelved.items() if name in models}
        self._models.keep(models)
        if len(models) == 1 and (only := by_name.get(next(iter(models)))) is not None:
            by_name[None] = only
        self._by_name = by_name

    def shelved(self, model: str) -> Shelved:
        """What is known of a model."""
        return self._shelved.get(model, Shelved(Rung.NONE, detail="not looked for yet"))

    def prompt_model(self, name: str | None) -> PromptModel | GivenIds | None:
        """By the name that a request uses; a request without one means the only model there is.

        None for a name that no worker has.
        """
        return self._by_name.get(name)

    def _for_engines(self, model: str, kinds: Collection[EngineKind]) -> PromptModel | GivenIds:
        found = self.shelved(model).model
        if found is None:
            return GivenIds(reads_transferred=EngineKind.SGLANG not in kinds)
        return found.for_engines(kinds)

    def _try(self, rung: Rung, name: str, directory: Path) -> Shelved:
        try:
            model = self._models.add(name, directory)
        except PromptModelError as error:
            return Shelved(Rung.NONE, directory=str(directory), detail=str(error))
        return Shelved(rung, model, str(directory))


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file system has
        return False
