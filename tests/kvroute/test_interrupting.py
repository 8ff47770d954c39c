"""Ctrl-C and SIGTERM at any moment of any command: no traceback, and one exit code each."""

import asyncio
import signal
import sys

import pytest

from kvroute.command_line import COMMANDS

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# Starts as the console script does, and is signalled when the module is about to be imported.
SIGNALLED = """
import os, signal, sys
class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
from kvroute.cli import main
sys.meta_path.insert(0, AtImport())
sys.argv = ["kvroute", *{words!r}]
main()
"""


async def ended(code: str) -> tuple[int | None, str]:
    """Exit code and stderr of a Python program."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30.0):
        _, stderr = await process.communicate()
    return process.returncode, stderr.decode()


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("module", ["typer", "pydantic", "kvroute.commands.serve"])
async def test_imports_are_left_without_a_word(module: str, number: signal.Signals) -> None:
    code = SIGNALLED.format(module=module, number=int(number), words=["serve"])
    assert await ended(code) == (CODES[number], "")


@pytest.mark.parametrize("name", COMMANDS)
async def test_every_command_is_left_without_a_word(name: str) -> None:
    module = f"kvroute.commands.{name}"
    code = SIGNALLED.format(module=module, number=int(signal.SIGINT), words=[name])
    assert await ended(code) == (130, "")


@pytest.mark.parametrize("number", CODES)
async def test_a_command_that_waits_is_unwound(number: signal.Signals) -> None:
    """Explain waits for a router that does not answer."""
    code = f"""
import os, signal, socket, sys, threading
from kvroute.cli import main
silent = socket.create_server(("127.0.0.1", 0))
held = []
def interrupt():
    held.append(silent.accept())
    os.kill(os.getpid(), {int(number)})
threading.Thread(target=interrupt, daemon=True).start()
sys.argv = ["kvroute", "explain", "x", "--control-url", f"http://127.0.0.1:{{silent.getsockname()[1]}}"]
main()
"""
    assert await ended(code) == (CODES[number], "")


async def test_what_is_ignored_stays_ignored() -> None:
    """As ``nohup`` and shells in the background have it."""
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from kvroute.cli import main
class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), {int(signal.SIGINT)})
sys.meta_path.insert(0, AtImport())
sys.argv = ["kvroute", "--version"]
main()
"""
    assert await ended(code) == (0, "")
