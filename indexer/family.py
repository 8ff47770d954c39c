"""Workers that serve the same model under the same names keep their blocks in the same key spaces."""

from dataclasses import dataclass

from indexer.match import Prompt
from protocol import KeySpace

Geometry = tuple[int, bool]
"""(block size in tokens, blocks are overlapping pairs): what selects a rank's key spaces."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """The names of a model. Compared by identity; one object a set of names."""

    model: str
    aliases: tuple[str, ...]
    adapters: tuple[str, ...]

    def key_space(self, prompt: Prompt, geometry: Geometry) -> KeySpace | None:
        """Where a rank of the family keeps the prompt; None where it does not serve its model.

        An alias means the model itself; the name of an adapter selects the adapter.
        """
        adapter = prompt.adapter
        if prompt.model != self.model and prompt.model not in self.aliases:
            if prompt.model not in self.adapters:
                return None
            adapter = adapter or prompt.model
        return KeySpace(self.model, adapter, prompt.salt, *geometry)
