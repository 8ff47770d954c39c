"""Logging of the long-running commands: one line an event, to stderr."""

import logging
from enum import StrEnum


class LogLevel(StrEnum):
    """The least serious that is shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up_logging(level: LogLevel) -> None:
    """Send the log of the whole process to stderr."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
