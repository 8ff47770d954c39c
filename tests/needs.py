"""What a test needs beyond Python: a skip with its reason here, a failure where all must be there."""

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest

STRICT_VARIABLE = "STRICT_TESTS"


def module(name: str, *, extra: str, may_be_missing: bool = False) -> ModuleType:
    """Import an optional module, or skip the test.

    Args:
        name: the module.
        extra: the extra of this project that installs it.
        may_be_missing: everywhere, for it needs libraries of the system.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = f"needs {name} (pip install kvroute[{extra}]): {error}"
        if may_be_missing:
            pytest.skip(reason)
        lacking(reason)


def lacking(reason: str) -> NoReturn:
    """Skip the test with the reason, or fail it where ``STRICT_TESTS`` is set."""
    if os.environ.get(STRICT_VARIABLE):
        pytest.fail(f"must not be skipped here: {reason}", pytrace=False)
    pytest.skip(reason)
