"""Reference of a configuration model: every field with type, default and meaning, section by section."""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from scripts.reference.docstrings import attributes, intro
from scripts.reference.markdown import code, sentence, table

_SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}
_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_NAMES_OF_MANY = {"whole number": "whole numbers"}
_OPEN = {"Path": "path", "SecretStr": "secret text"}


class UndocumentedFieldError(Exception):
    """A field has no line in its class's docstring."""


def settings(model: type[BaseModel]) -> list[str]:
    """A table of the model's plain fields, then one of each section in it."""
    parts = [fields_table(model)]
    for path, section in _sections(model):
        parts += [f"## {path}", sentence(intro(section)), fields_table(section, f"{path}.")]
    return parts


def fields_table(model: type[BaseModel], prefix: str = "", *, without: Collection[str] = ()) -> str:
    """A table of the model's fields, but for those of these names."""
    meanings = attributes(model)
    rows = []
    for name, field in model.model_fields.items():
        if name in without:
            continue
        section = _section_of(field)
        meaning = meanings.get(name) or (intro(section) if section else None)
        if meaning is None:
            raise UndocumentedFieldError(f"{model.__name__}.{name}")
        anchor = f"{prefix}{name}".replace(".", "")
        typed = f"[section](#{anchor})" if section else _type(field)
        default = "" if section else _default(field)
        rows.append((code(prefix + name), typed, default, sentence(meaning)))
    return table(("field", "type", "default", "meaning"), rows)


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        section = _section_of(field)
        if section is not None:
            yield prefix + name, section
            yield from _sections(section, f"{prefix}{name}.")


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model that a field holds, alone or in a list."""
    for part in (field.annotation, *get_args(field.annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _type(field: FieldInfo) -> str:
    bounds = [f"{sign} {_bound(field, kind)}" for kind, sign in _SIGNS.items() if _has(field, kind)]
    return ", ".join([type_name(field.annotation), *bounds])


def type_name(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(type_name(one) for one in arguments if one is not NoneType)
    if origin is Literal:
        return _choices(arguments)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin is list:
        return f"list of {_NAMES_OF_MANY[type_name(arguments[0])]}"
    if origin is tuple:
        return "list"
    if origin is dict:
        return f"mapping, {type_name(arguments[0])} → {type_name(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choices([one.value for one in annotation])
    return _NAMES.get(annotation) or _OPEN.get(annotation.__name__, annotation.__name__)


def _choices(values: Any) -> str:
    return ", ".join(code(str(value)) for value in values)


def _has(field: FieldInfo, kind: type) -> bool:
    return any(isinstance(one, kind) for one in _metadata(field))


def _bound(field: FieldInfo, kind: type) -> str:
    found = next(one for one in _metadata(field) if isinstance(one, kind))
    value = getattr(found, kind.__name__.lower())
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _metadata(field: FieldInfo) -> list[object]:
    """Constraints of the field, and of what it may hold beside None."""
    found = list(field.metadata)
    for argument in get_args(field.annotation):
        for one in get_args(argument)[1:]:
            found += one.metadata if isinstance(one, FieldInfo) else [one]
    return found


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        made = field.default_factory
        return "required" if made is None else "empty"
    value = field.default.value if isinstance(field.default, Enum) else field.default
    if isinstance(value, tuple) and value:
        return ", ".join(code(str(one)) for one in value)
    if value is None or isinstance(value, Mapping | tuple):
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(str(value)) if value != "" else "empty"
