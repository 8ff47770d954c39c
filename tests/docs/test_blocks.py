"""Blocks of the documentation that need no running fleet: they parse, load and run."""

import re
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from indexer.findings import FindingKind
from indexer.trust import Trust
from prompt import bundled_model_dir
from router.config import load_config
from router.views import FindingView
from scoring.decision import Candidate, Decision, RankName, Reason
from scoring.decision_json import decision_record
from scripts.reference.command_line import flags
from tests.docs.pages import ROOT, Block, blocks

CERTIFICATES = {"ca_file": "authority.pem", "cert_file": "router.pem", "key_file": "router.key"}
CHART = ROOT / "helm" / "kvroute" / "values.yaml"


def where(block: Block) -> str:
    return block.where


@pytest.mark.parametrize("block", blocks("python"), ids=where)
def test_python_runs(block: Block) -> None:
    if "127.0.0.1" not in block.text:
        exec(compile(block.text, block.where, "exec"), {})  # noqa: S102  our own pages


@pytest.mark.parametrize("block", blocks("yaml"), ids=where)
def test_yaml_configures(block: Block, tmp_path: Path) -> None:
    contents = yaml.safe_load(block.text)
    if block.text.startswith("# values.yaml\n"):
        assert contents.keys() <= yaml.safe_load(CHART.read_text(encoding="utf-8")).keys()
        contents = contents.get("config", {})
    load(contents, tmp_path / "kvroute.yaml")


def load(contents: dict[str, Any], file: Path) -> None:
    """Load a router's configuration; its tokenizers, certificates and keys are taken to be there."""
    if "keys_file" in contents:
        contents["keys_file"] = str(ROOT / "tests" / "data" / "keys.yaml")
    for name in contents.get("tokenizers", {}):
        contents["tokenizers"][name] = str(bundled_model_dir())
    for section in ("worker_tls", "tls", "control_tls"):
        for name in contents.get(section, {}).keys() & CERTIFICATES.keys():
            contents[section][name] = str(ROOT / "tests" / "data" / "tls" / CERTIFICATES[name])
    file.write_text(yaml.safe_dump(contents), encoding="utf-8")
    load_config(file, {}, {})


@pytest.mark.parametrize("block", blocks("json"), ids=where)
def test_json_has_the_fields_of_what_it_shows(block: Block) -> None:
    shown = orjson.loads(block.text)
    if isinstance(shown, Mapping) and "candidates" in shown:
        expected = example_of_a_decision()
        assert shown.keys() == expected.keys()
        for candidate in shown["candidates"]:
            assert candidate.keys() == expected["candidates"][0].keys()
            assert round(sum(candidate["terms_ms"].values()), 3) == round(candidate["cost_ms"], 3)
    elif isinstance(shown, list):
        for one in shown:
            assert one.keys() == FindingView.model_fields.keys()
            assert one["kind"] in set(FindingKind)


def example_of_a_decision() -> dict[str, Any]:
    candidate = Candidate("w", 0, True, None, Trust.EXACT, 16, 0, 0, 0, 0, 0, 0, 0, 0)  # noqa: FBT003
    chosen = RankName("w", 0)
    decision = Decision(
        "id", 0.0, "m", "chat", "cost", 1, chosen, Reason.ONLY_CANDIDATE, (candidate,)
    )
    return decision_record(decision)


def commands() -> list[tuple[str, list[str]]]:
    """Each command line of the pages, with where it stands; continued lines are joined."""
    found = []
    for block in blocks("sh", "console"):
        for line in re.sub(r"\\\n", " ", block.text).splitlines():
            words = shlex.split(line.removesuffix("&"), comments=True) if quoted(line) else []
            if words:
                found.append((block.where, words))
    return found


def quoted(line: str) -> bool:
    """Whether the line is a command of ours, not a piece of a document or another program's."""
    return line.startswith(("kvroute ", "make ", "python -m benchmarks", "python -m scripts"))


@pytest.mark.parametrize(("at", "words"), commands(), ids=lambda one: str(one)[:60])
def test_commands_exist(at: str, words: list[str]) -> None:
    if words[0] == "kvroute":
        known = flags()
        command = " ".join(words[:3]) if " ".join(words[:3]) in known else " ".join(words[:2])
        used = {word for word in words if word.startswith("--")}
        assert used <= known[command], at
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), at
    else:
        assert find_spec(words[2]) is not None, at


def test_benchmarks_that_the_readme_names_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    modules = re.findall(r"python -m (benchmarks\.\w+)", readme)
    assert modules
    assert all(find_spec(module) is not None for module in modules)
