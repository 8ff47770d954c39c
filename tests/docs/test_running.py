"""Blocks of the documentation that run against README's fleet, all of them in one shell.

Every port that a page names is exchanged for a free one, and nothing else; they are taken while the pages run.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from loadgen.fleet import free_ports
from tests import needs
from tests.docs.pages import ROOT, Block, blocks

TIMEOUT_S = 90.0
BLOCKS = [*blocks("sh"), *(one for one in blocks("python") if "127.0.0.1" in one.text)]
_PORT = re.compile(r"(?:127\.0\.0\.1:|localhost:|--port |--control-port )(\d{4,5})\b")
NAMED_PORTS = sorted(
    {"8080", "8081", *(port for one in BLOCKS for port in _PORT.findall(one.text))}
)
# Ends what the pages start; a page that fails ends the script, so later ones say nothing.
PRELUDE = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"


@dataclass(frozen=True, slots=True)
class Session:
    """What came of the script: the output of every block that ran to its end, and the log of all."""

    outputs: Mapping[str, str]
    log: str


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """All blocks, run once."""
    for program in ("bash", "curl", "seq"):
        if shutil.which(program) is None:
            needs.lacking(f"needs {program}")
    directory = tmp_path_factory.mktemp("pages")
    ports = dict(zip(NAMED_PORTS, map(str, free_ports(len(NAMED_PORTS))), strict=True))
    script = PRELUDE + "".join(section(block, ports) for block in BLOCKS)
    with taken(NAMED_PORTS):
        said, log = run(script, directory, ports)
    return Session(dict(re.findall(r"^begin (\S+)\n(.*?)^end \1$", said, re.M | re.S)), log)


@contextmanager
def taken(ports: Iterable[str]) -> Iterator[None]:
    """The ports are somebody's; those that are so anyway stay theirs."""
    with ExitStack() as stack:
        for port in ports:
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", int(port))))
        yield


def section(block: Block, ports: Mapping[str, str]) -> str:
    """A block between two marks."""
    text = block.text
    for port, free in ports.items():
        text = re.sub(rf"\b{port}\b", free, text)
    control = f"http://127.0.0.1:{ports['8081']}"
    text = text.replace("kvroute explain ", f"kvroute explain --control-url {control} ")
    if block.language == "python":
        text = f"python - <<'PYTHON'\n{text}PYTHON\n"
    return f"echo 'begin {block.where}'\n{text}echo\necho 'end {block.where}'\n"


def run(script: str, directory: Path, ports: Mapping[str, str]) -> tuple[str, str]:
    """Run the script as a process group of its own, which is ended with it; its output and its log."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "KVROUTE_HOST": "127.0.0.1",
        "KVROUTE_PORT": ports["8080"],
        "KVROUTE_CONTROL_PORT": ports["8081"],
        "KVROUTE_DRAIN__WINDOW_S": "0",
    }
    stdout, stderr = directory / "stdout", directory / "stderr"
    with stdout.open("w") as out, stderr.open("w") as err:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=directory, env=environment, stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
        try:
            with suppress(subprocess.TimeoutExpired):  # what did not run is missed by its test
                process.wait(TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return stdout.read_text(), stderr.read_text()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_block_runs(block: Block, session: Session) -> None:
    assert block.where in session.outputs, session.log[-4000:]


def test_the_quick_start_shows_what_the_readme_says(session: Session) -> None:
    readme = [session.outputs[one.where] for one in BLOCKS if one.page == ROOT / "README.md"]
    assert any("lowest_cost" in output for output in readme)
    assert "kvroute_workers" in readme[-1]


def test_a_healthy_fleet_has_no_findings(session: Session) -> None:
    page = ROOT / "docs" / "how-to" / "findings.md"
    assert [session.outputs[one.where].strip() for one in BLOCKS if one.page == page] == ["[]"]


def test_a_prefix_query_is_answered_as_its_page_says(session: Session) -> None:
    page = ROOT / "docs" / "reference" / "queries.md"
    (shown,) = [orjson.loads(one.text) for one in blocks("json") if one.page == page]
    *_, output = [session.outputs[one.where] for one in BLOCKS if one.page == page]
    (told,) = orjson.loads(output)["default"].values()
    assert [told] == list(shown["default"].values())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_no_block_looks_for_processes_to_signal(block: Block) -> None:
    """What it would find is the reader's, or the shell that runs it."""
    assert re.search(r"\b(pgrep|pkill|killall|pidof)\b", block.text) is None
