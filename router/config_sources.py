"""Where configuration comes from beside flags: the environment and a YAML file."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import orjson
import yaml
from pydantic import BaseModel
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from protocol.fault_words import is_secret, shown
from router.causes import cause_of

_PREFIX = "KVROUTE_"
_DELIMITER = "__"
_MERGE = "tag:yaml.org,2002:merge"
_ADDRESSES = ("tcp://", "udp://", "sctp://")
_INJECTED = re.compile(
    r"(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)


class ConfigError(Exception):
    """The configuration is not valid. The message names the field."""


class EnvironmentVariables(EnvSettingsSource):
    """The environment, without the addresses that Kubernetes injects for Services of such a name.

    Raises:
        ConfigError: a variable has the prefix and names no field, or is no JSON where its field needs it.
    """

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {
            name.lower(): value
            for name, value in environ.items()
            if not value.startswith(_ADDRESSES) and not _INJECTED.fullmatch(name)
        }
        for name in environ:
            if name.lower() in self.env_vars and name.lower().startswith(self.env_prefix.lower()):
                self._refuse_unknown(name)

    def __call__(self) -> dict[str, Any]:
        """What the variables say."""
        try:
            return super().__call__()
        except SettingsError as error:
            told = self._undecoded(str(error))
            raise ConfigError(told) from None  # the library's words repeat secrets

    def _undecoded(self, text: str) -> str:
        """Which variable it is that does not parse; pydantic names the field of the first level."""
        field = re.search(r'"(\w+)"', text)
        head = f"{_PREFIX}{field[1]}".lower() if field else _PREFIX.lower()
        for name, value in self.env_vars.items():
            is_field = name == head or name.startswith(head + _DELIMITER)
            if is_field and value and not _is_json(value):
                given = "" if is_secret([head]) else shown(value)
                text = "a section or a list is written as JSON, or a variable a field"
                return f"{name.upper()}: {text}" + (f" (given: {given})" if given else "")
        return text

    def _refuse_unknown(self, name: str) -> None:
        path = name.lower().removeprefix(self.env_prefix.lower())
        head, *rest = path.split(str(self.env_nested_delimiter))
        field = self.settings_cls.model_fields.get(head)
        if field is None or (rest and not _has_fields(field.annotation)):
            raise ConfigError(f"{name}: this variable names no field")


def listed(value: object) -> object:
    """A list as an environment variable or flag may spell it: JSON, or comma separated."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return orjson.loads(value)
    return [part for part in (part.strip() for part in value.split(",")) if part]


def set_by(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Each variable that may set a field → the field's path."""
    return {
        name: tuple(name[len(_PREFIX) :].lower().split(_DELIMITER))
        for name in environ
        if name.upper().startswith(_PREFIX)
    }


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _has_fields(annotation: object) -> bool:
    """Can a variable name something within a field of this type?"""
    origin = get_origin(annotation)
    kinds = get_args(annotation) if origin in (Union, UnionType) else (annotation,)
    is_section = any(isinstance(one, type) and issubclass(one, BaseModel) for one in kinds)
    return is_section or origin is dict


class FileContents(PydanticBaseSettingsSource):
    """What the file says."""

    def __init__(self, settings_cls: type[BaseSettings], contents: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._contents = contents

    def get_field_value(self, field: object, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError(f"the file is read whole, not {field_name} of {field}")

    def __call__(self) -> dict[str, Any]:
        return self._contents


class _GivenTwiceError(yaml.YAMLError):
    """The message names line and key."""


class _OneOfEachLoader(yaml.SafeLoader):
    """The safe loader, for files in which nothing is said twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base does, unless a key comes again: YAML itself would let the last one win."""
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in names:
                where = key.start_mark.line + 1
                raise _GivenTwiceError(f"line {where}: {key.value} is given twice")
            names.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """The file's mapping; an empty file is an empty one.

    Raises:
        ConfigError: it cannot be read, is no YAML mapping, or names a field twice.
    """
    contents = load_yaml(path)
    if contents is None:
        return {}
    if not isinstance(contents, dict):
        raise ConfigError(f"{path}: the file holds no mapping")
    return {str(name): value for name, value in contents.items()}


def load_yaml(path: Path) -> object:
    """What the file says.

    Raises:
        ConfigError: it cannot be read, is no YAML, or names a field twice.
    """
    try:
        contents: object = yaml.load(path.read_text(encoding="utf-8"), Loader=_OneOfEachLoader)  # noqa: S506
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {cause_of(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not text in UTF-8") from error
    except _GivenTwiceError as error:
        raise ConfigError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {_place(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: too deep") from error
    except (AttributeError, LookupError, ValueError) as error:  # of the library's constructors
        raise ConfigError(f"{path}: a value that is none of its type") from error
    return contents


def _place(error: yaml.YAMLError) -> str:
    """What is wrong and where, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def without_nones(given: Mapping[str, object]) -> dict[str, Any]:
    """What is given, at every depth."""
    return {
        name: without_nones(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }
