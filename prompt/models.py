"""The models that this process can tokenize for, by the name that requests use, and why not for others."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from prompt.errors import PromptModelError
from prompt.file_stamp import Stamp
from prompt.model import PromptModel
from prompt.model_files import stamp_of_model
from prompt.token_memo import TokenMemo
from prompt.tokenizer import TokenizerChoice

MAX_NAMES = 256
"""Names held at once; a further one is refused, so that workers cannot fill the memory with names."""
_MAX_KEPT = 4


class _Loaded(NamedTuple):
    """A model, and what it was made of."""

    path: Path
    stamp: Stamp
    model: PromptModel


class PromptModels:
    """Model name → PromptModel. Names of the same directory (aliases) share one model.

    Of each name the last directories are kept, up to four: workers that name different ones are learned by turns. A
    directory whose files have changed is loaded anew when it is added again.

    Tables are replaced, never shrunk, so that one thread may ``keep`` while another one adds; what is
    added meanwhile may be forgotten, and is loaded again when it is added again.
    """

    def __init__(
        self,
        *,
        tokenizer: TokenizerChoice = TokenizerChoice.AUTO,
        memo: TokenMemo | None = None,
    ) -> None:
        """``memo``: where all of them keep the tokens of long chats; None for nowhere."""
        self._tokenizer = tokenizer
        self._memo = memo
        self._models: dict[str, tuple[_Loaded, ...]] = {}  # the last one added is in use
        self._faults: dict[str, str] = {}

    def add(self, model_name: str, directory: Path) -> PromptModel:
        """Load ``directory`` for ``model_name``; a name added again gets the new directory.

        Up to seconds for a large vocabulary, so not in an event loop.

        Raises:
            PromptModelError: the directory cannot be used, which ``fault`` tells from then on, or there
                are too many names.
        """
        known = self._models.keys() | self._faults.keys()
        if model_name not in known and len(known) >= MAX_NAMES:
            raise PromptModelError(f"{model_name}: more than {MAX_NAMES} model names")
        path = directory.resolve()
        stamp = stamp_of_model(path)
        try:
            model = self._loaded(path, stamp) or PromptModel.load(
                path, tokenizer=self._tokenizer, memo=self._memo
            )
        except PromptModelError as error:
            self._faults[model_name] = str(error)
            raise
        others = [one for one in self._models.get(model_name, ()) if one.path != path]
        self._models[model_name] = (*others[1 - _MAX_KEPT :], _Loaded(path, stamp, model))
        self._faults.pop(model_name, None)
        return model

    def keep(self, model_names: Collection[str]) -> None:
        """Forget every other name, and the models that no name is left of."""
        self._models = {name: one for name, one in self._models.items() if name in model_names}
        self._faults = {name: why for name, why in self._faults.items() if name in model_names}

    def get(self, model_name: str) -> PromptModel | None:
        """The model of this name, None where there is none."""
        found = self._models.get(model_name)
        return found[-1].model if found else None

    def names(self) -> list[str]:
        """Names that have a model, in the order they came."""
        return list(self._models)

    def fault(self, model_name: str) -> str | None:
        """Why loading for this name failed last; None if it did not fail or was never tried."""
        return self._faults.get(model_name)

    def _loaded(self, path: Path, stamp: Stamp) -> PromptModel | None:
        kept = (one for loaded in self._models.values() for one in loaded)
        return next((one.model for one in kept if one.path == path and one.stamp == stamp), None)
