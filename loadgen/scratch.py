"""A directory for logs and stores of one run: removed at the end, kept where the run failed."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_directory() -> Generator[Path, None, None]:
    """Make the directory; an error that passes through keeps it and gets a note that says where.

    What is no ``Exception`` (an interrupt, a cancellation) is no failure of the run.
    """
    path = Path(tempfile.mkdtemp(prefix="kvroute-"))
    try:
        yield path
    except Exception as error:
        error.add_note(f"logs are kept in {path}")
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(path, ignore_errors=True)
