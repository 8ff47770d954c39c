"""What the packages import is declared, and what is declared is what is tested."""

import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_import_table import MAY_IMPORT, ROOT, imported_packages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = ("fast", "otel")
OPTIONAL = [
    Requirement(text) for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra]
]
RELIED_ON_INSIDE = ("uvicorn",)


def sources() -> list[Path]:
    return [file for package in MAY_IMPORT for file in sorted((ROOT / package).rglob("*.py"))]


def test_every_import_is_a_declared_dependency() -> None:
    distributions = packages_distributions()
    declared = {canonicalize_name(one.name) for one in REQUIREMENTS + OPTIONAL}
    for file in sources():
        imported = imported_packages(file.read_text()) - MAY_IMPORT.keys()
        for module in imported - sys.stdlib_module_names:
            names = {canonicalize_name(name) for name in distributions.get(module, [module])}
            assert names & declared, f"{file.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda one: one.name)
def test_what_is_installed_is_what_is_declared(requirement: Requirement) -> None:
    assert requirement.specifier.contains(version(requirement.name))


@pytest.mark.parametrize("name", RELIED_ON_INSIDE)
def test_what_is_relied_on_inside_is_bounded_to_one_minor_version(name: str) -> None:
    (requirement,) = [one for one in REQUIREMENTS if one.name == name]
    major, minor, *_ = version(name).split(".")
    assert not requirement.specifier.contains(f"{major}.{int(minor) + 1}")
    assert not requirement.specifier.contains(f"{major}.{int(minor) - 1}")
