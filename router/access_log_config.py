"""Whether, in what form and where requests are logged, as it is configured."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from router.config_section import Section


class LogFormat(StrEnum):
    """Of a line."""

    OFF = "off"
    JSON = "json"
    TEXT = "text"


def _unquoted(value: object) -> object:
    """YAML reads a bare ``off`` as false."""
    return LogFormat.OFF if value is False else value


class AccessLogConfig(Section):
    """A line for each request to the data port, probes of `/health` and `/ready` apart. There is no prompt in it, no
    header, no credential, no query.

    Attributes:
        format: `json` or `text` (`name=value`); with `off` there is no such log, and it costs nothing.
        file: that is appended to; opened anew when it has been moved away, and at SIGHUP. By default lines go to
            standard output.
    """

    format: Annotated[LogFormat, BeforeValidator(_unquoted)] = LogFormat.OFF
    file: Path | None = None
