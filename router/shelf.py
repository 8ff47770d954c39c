"""Prompt models by the names that requests use, each with the rung of the ladder it stands on.

    configured   ``tokenizers`` names a directory
    engine       the directory that the engine names, if it is here and loads
    hub          the model that the engine names, from a local hub cache
    asked        engines of the model tokenize for others: each prompt is asked about (`engine_tokens`)
    approximate  requests of this model are placed by what the router remembers of alike texts
    none         requests of this model go by load alone; the reason is shown

An engine that tokenizes for others also proves the rungs above when it is learned: where it makes other tokens than
the router, these are not used.

A request is tokenized before it is known which worker takes it, so it has tokens only where all engines
that serve its model would make the same ones.

Loading takes up to seconds and happens in a thread; lookups see one consistent snapshot.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from prompt import (
    AskedKind,
    GivenIds,
    PromptModel,
    PromptModelError,
    PromptModels,
    TokenizerChoice,
    TokenMemo,
    hub_snapshot,
)
from protocol import EngineKind, WorkerId, WorkerSpec
from router.engine_tokens import AskedEngine, AskedModel
from router.tokenizer_findings import Difference
from router.tokenizer_proof import Proof

logger = logging.getLogger(__name__)

_KINDS = {
    (False, False): AskedKind.VLLM,
    (False, True): AskedKind.VLLM,
    (True, False): AskedKind.SGLANG,
    (True, True): AskedKind.BOTH,
}
"""By whether an SGLang serves the model, and whether others do, too."""


class Rung(StrEnum):
    """Where a model's tokenizer comes from."""

    CONFIGURED = "configured"
    ENGINE = "engine"
    HUB = "hub"
    ASKED = "asked"
    APPROXIMATE = "approximate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Shelved:
    """What is known of one model's tokenizer. ``detail`` says why there is none here, or none of a rung above; ``fault``,
    what of it was found and cannot be used."""

    rung: Rung
    model: PromptModel | None = None
    directory: str | None = None
    detail: str | None = None
    fault: str | None = None


class PromptShelf:
    """Holds at most as many models as ``PromptModels`` allows; further ones have none, and say so."""

    def __init__(
        self,
        configured: Mapping[str, Path],
        tokenizer_backend: TokenizerChoice = TokenizerChoice.AUTO,
        *,
        hub_cache: Path | None = None,
        memo: TokenMemo | None = None,
        approximates: bool = False,
    ) -> None:
        """``hub_cache``: where models are looked for by their hub id; None for nowhere. ``approximates``: what has no
        tokens is not placed by load alone."""
        self._last_rung = Rung.APPROXIMATE if approximates else Rung.NONE
        self._configured = dict(configured)
        self._hub_cache = hub_cache
        self._models = PromptModels(tokenizer=tokenizer_backend, memo=memo)
        self._shelved: dict[str, Shelved] = {}
        self._by_name: dict[str | None, PromptModel | GivenIds] = {}
        self._asked: dict[str | None, AskedModel] = {}
        self._proved: frozenset[str | None] = frozenset()
        self._specs: Sequence[WorkerSpec] = ()
        self._proofs: dict[WorkerId, Proof] = {}
        self._differs_since: dict[WorkerId, float] = {}

    def load(self, spec: WorkerSpec) -> Shelved:
        """Find and load the worker's tokenizer; blocks for seconds at worst. Changes nothing that is seen."""
        faults: list[str] = []
        directory: Path | None = None
        for rung, directory in self._places(spec):
            try:
                model = self._models.add(spec.model, directory)
            except PromptModelError as error:
                faults.append(str(error))
            else:
                return Shelved(rung, model, str(directory), _told(faults), _told(faults))
        shown = None if directory is None else str(directory)
        detail = _told([*faults, *self._lacks(spec, directory)])
        return Shelved(Rung.NONE, None, shown, detail, _told(faults))

    def _places(self, spec: WorkerSpec) -> Iterator[tuple[Rung, Path]]:
        """Where the tokenizer may be, the best place first."""
        for name in (spec.model, *spec.aliases):
            if name in self._configured:
                yield Rung.CONFIGURED, self._configured[name]
                break
        if spec.tokenizer is None:
            return
        if _is_directory(Path(spec.tokenizer)):
            yield Rung.ENGINE, Path(spec.tokenizer)
        if self._hub_cache is not None:
            snapshot = hub_snapshot(self._hub_cache, spec.tokenizer)
            if snapshot is not None:
                yield Rung.HUB, snapshot

    def _lacks(self, spec: WorkerSpec, tried: Path | None) -> Iterator[str]:
        """Why the engine's own word led nowhere."""
        if spec.tokenizer is None:
            yield "the engine names no tokenizer"
        elif tried is None or not _is_directory(Path(spec.tokenizer)):
            where = "" if self._hub_cache is None else ", and no model in the hub cache"
            yield f"{spec.tokenizer} is no directory here{where}"

    def put(self, spec: WorkerSpec, shelved: Shelved) -> None:
        """What ``load`` found; a model that another worker brought stays if this one brings none."""
        known = self._shelved.get(spec.model)
        if shelved.fault not in (None, known and known.fault):
            if shelved.model is None:
                logger.warning("%s has no tokenizer here: %s", spec.model, shelved.fault)
            else:
                told = (spec.model, shelved.fault, shelved.rung)
                logger.warning("%s: %s; going by the %s rung", *told)
        if known is None or shelved.model is not None or known.model is None:
            self._shelved[spec.model] = shelved

    def keep(self, specs: Iterable[WorkerSpec]) -> None:
        """These are all workers: names are served as they say, models of no worker are dropped.

        O(workers × names).
        """
        self._specs = list(specs)
        models = {spec.model for spec in self._specs}
        workers = {spec.worker for spec in self._specs}
        self._proofs = {worker: one for worker, one in self._proofs.items() if worker in workers}
        self._differs_since = {
            worker: since for worker, since in self._differs_since.items() if worker in workers
        }
        self._shelved = {name: one for name, one in self._shelved.items() if name in models}
        self._models.keep(models)
        self._name()

    def prove(self, worker: WorkerId, proof: Proof, now: float) -> None:
        """What a worker, one of those that were kept, has shown. O(workers × names)."""
        before = self._proofs.get(worker, Proof())
        if proof.difference is not None and proof.difference != before.difference:
            logger.warning("worker %s: %s; they are not used", worker, proof.difference)
            self._differs_since.setdefault(worker, now)
        if proof.difference is None:
            self._differs_since.pop(worker, None)
        self._proofs[worker] = proof
        if proof != before:
            self._name()

    def shelved(self, model: str) -> Shelved:
        """What is known of a model."""
        found = self._shelved.get(model, Shelved(Rung.NONE, detail="not looked for yet"))
        difference = self._difference(model)
        if found.model is not None and difference is None:
            return found
        is_asked = any(spec.model == model and self._takes_texts(spec) for spec in self._specs)
        rung = Rung.ASKED if is_asked else self._last_rung
        return Shelved(rung, directory=found.directory, detail=difference or found.detail)

    def differences(self) -> list[Difference]:
        """Workers that make other tokens than are made here. O(workers)."""
        found: list[Difference] = []
        for spec in self._specs:
            proof = self._proofs.get(spec.worker)
            if proof is not None and proof.difference is not None:
                since = self._differs_since[spec.worker]
                found.append(Difference(spec, since, proof.difference))
        return found

    def asked(self, name: str | None) -> AskedModel | None:
        """Who can be asked about prompts of a model, by the name that a request uses; None where nobody can, or
        nobody needs to be."""
        return self._asked.get(name)

    def is_proved_vllm(self, name: str | None) -> bool:
        """Whether every engine of a model, by the name that a request uses, is a vLLM that makes of chats the tokens
        that are made here."""
        return name in self._proved

    def prompt_model(self, name: str | None) -> PromptModel | GivenIds | None:
        """By the name that a request uses; a request without one means the only model there is.

        None for a name that no worker has.
        """
        return self._by_name.get(name)

    def _name(self) -> None:
        """Look every name up anew."""
        by_name: dict[str | None, PromptModel | GivenIds] = {}
        asked: dict[str | None, AskedModel] = {}
        proved: set[str | None] = set()
        by_model: dict[str, list[WorkerSpec]] = {}
        for spec in self._specs:
            by_model.setdefault(spec.model, []).append(spec)
        for model, specs in by_model.items():
            found, engines = self._for_engines(model, specs)
            names: list[str | None] = [None] if len(by_model) == 1 else []
            for spec in specs:
                names += (spec.model, *spec.aliases, *spec.adapter_names)
            if all(map(self._is_proved, specs)):
                proved.update(names)
            for name in names:
                by_name.setdefault(name, found)
                if engines is not None:
                    asked.setdefault(name, engines)
        self._by_name, self._asked, self._proved = by_name, asked, frozenset(proved)

    def _for_engines(
        self, model: str, specs: Sequence[WorkerSpec]
    ) -> tuple[PromptModel | GivenIds, AskedModel | None]:
        """What makes the model's tokens here, and who else can be asked for them."""
        kinds = {spec.engine for spec in specs}
        found = self.shelved(model).model
        if found is not None:
            follows = kinds == {EngineKind.SGLANG} and all(map(self._follows, specs))
            return found.for_engines(kinds, follows_sglang=follows), None
        is_sglang = EngineKind.SGLANG in kinds
        engines = [
            AskedEngine(spec.url, self._proofs[spec.worker].takes_chats)
            for spec in specs
            if self._takes_texts(spec)
        ]
        kind = _KINDS[is_sglang, len(kinds) > 1]
        asked = AskedModel(model, engines, kind) if engines else None
        return GivenIds(reads_transferred=not is_sglang), asked

    def _is_proved(self, spec: WorkerSpec) -> bool:
        proof = self._proofs.get(spec.worker)
        is_alike = proof is not None and proof.takes_chats and proof.difference is None
        return is_alike and spec.engine is EngineKind.VLLM

    def _follows(self, spec: WorkerSpec) -> bool:
        proof = self._proofs.get(spec.worker)
        return proof is not None and proof.follows

    def _takes_texts(self, spec: WorkerSpec) -> bool:
        proof = self._proofs.get(spec.worker)
        return proof is not None and proof.takes_texts

    def _difference(self, model: str) -> str | None:
        """How some worker's tokens differ from those that are made here."""
        for spec in self._specs:
            proof = self._proofs.get(spec.worker)
            if spec.model == model and proof is not None and proof.difference is not None:
                return proof.difference
        return None


def _told(faults: Sequence[str]) -> str | None:
    return "; ".join(faults) or None


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file system has
        return False
