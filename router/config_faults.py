"""A fault of the configuration in words: the file or variable it stands in, the field's path, what is wrong.

An unknown field comes with the known name that is nearest to it, where one is near.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from protocol.fault_words import fault_words, is_secret

_Path = Sequence[int | str]


@dataclass(frozen=True, slots=True)
class FaultWords:
    """What is needed to word a fault.

    Attributes:
        model: the configuration's.
        file: its contents are ``contents``; None where there is none.
        flags: fields of the first level that are set by flags, whatever else says something of them.
        variables: name → the path of the field that it sets, whatever the file says of it.
    """

    model: type[BaseModel]
    file: Path | None
    contents: Mapping[str, object]
    flags: frozenset[str]
    variables: Mapping[str, _Path]

    def of(self, error: Mapping[str, Any]) -> str:
        """The fault in a sentence, from one of a ``ValidationError``'s errors."""
        where: _Path = error["loc"]
        text, is_shown = fault_words(error), True
        if error["type"] == "extra_forbidden":
            hint = _hint(str(where[-1]), _names(self.model, where[:-1]))
            text = f"unknown field{hint}"
            is_shown = bool(hint) or not is_secret(where[:-1])
        path = ".".join(map(str, where if is_shown else where[:-1]))
        said = where[:-1] if error["type"] == "missing" else where
        return ": ".join(filter(None, (self._source(said), path, text)))

    def _source(self, where: _Path) -> str:
        """Where it was said; empty for a flag, whose name is the path, and for what is said nowhere."""
        if not where or where[0] in self.flags:
            return ""
        for name, path in self.variables.items():
            if tuple(where[: len(path)]) == tuple(path):
                return name
        has_variable = any(path[0] == where[0] for path in self.variables.values())
        return "" if has_variable or not _is_said(self.contents, where) else str(self.file)


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1)
    return f", did you mean {near[0]}?" if near else ""


def _names(model: type[BaseModel], where: _Path) -> Iterable[str]:
    """Fields of the section at the path; none where there is no section."""
    for part in where:
        if isinstance(part, int):
            continue  # of a list, whose items are of one type
        field = model.model_fields.get(part)
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        sections = (one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel))
        section = next(sections, None)
        if section is None:
            return ()
        model = section
    return model.model_fields


def _is_said(contents: object, where: _Path) -> bool:
    """Does the file say something at the path? A text may stand for a section with one field, as a worker's URL."""
    for part in where:
        if isinstance(contents, str):
            return True
        items = dict(enumerate(contents)) if isinstance(contents, list) else contents
        if not isinstance(items, Mapping) or part not in items:
            return False
        contents = items[part]
    return True
