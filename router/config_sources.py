"""Where configuration comes from beside flags: the environment and a YAML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource


class ConfigError(Exception):
    """The configuration is not valid. The message names the field."""


class EnvironmentVariables(EnvSettingsSource):
    """The environment, without the addresses that Kubernetes injects for a Service of the same name."""

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {
            name.lower(): value for name, value in environ.items() if not value.startswith("tcp://")
        }


class FileContents(PydanticBaseSettingsSource):
    """What the file says."""

    def __init__(self, settings_cls: type[BaseSettings], contents: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._contents = contents

    def get_field_value(self, field: object, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError(f"the file is read whole, not {field_name} of {field}")

    def __call__(self) -> dict[str, Any]:
        return self._contents


def read_yaml(path: Path) -> dict[str, Any]:
    """The file's mapping; an empty file is an empty one.

    Raises:
        ConfigError: it cannot be read, or is no YAML mapping.
    """
    try:
        contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if contents is None:
        return {}
    if not isinstance(contents, dict):
        raise ConfigError(f"{path}: the file holds no mapping")
    return {str(name): value for name, value in contents.items()}


def without_nones(given: Mapping[str, object]) -> dict[str, Any]:
    """What is given, at every depth."""
    return {
        name: without_nones(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None
    }
