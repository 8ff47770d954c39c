"""What the image is built from, without a builder: the context holds what the build takes and no more."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORED = (ROOT / ".dockerignore").read_text().split()


def test_the_build_finds_what_it_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = [*packages, project["project"]["readme"], *project["project"]["license-files"]]
    assert not {*needed, "pyproject.toml"} & set(IGNORED)
    assert all((ROOT / name).exists() for name in needed)


def test_environment_and_history_stay_out() -> None:
    assert {".git", ".venv", "**/__pycache__"} <= set(IGNORED)


def test_the_image_serves_on_the_port_that_it_names() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "EXPOSE 8080" in lines
    assert 'CMD ["serve"]' in lines
