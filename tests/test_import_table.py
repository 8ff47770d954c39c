"""The packages import each other only as the design's table allows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "protocol": set[str](),
    "prompt": {"protocol"},
    "indexer": {"protocol"},
    "scoring": {"protocol", "prompt", "indexer"},
    "router": {"protocol", "prompt", "indexer", "scoring"},
    "worker": {"protocol", "prompt"},
    "loadgen": {"protocol", "prompt", "indexer", "scoring", "worker"},
    "kvroute": {"protocol", "prompt", "indexer", "scoring", "router", "worker", "loadgen"},
}


def imported_packages(source: str) -> set[str]:
    """Top-level names of every absolute import in ``source``, wherever in the file it stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_imports_only_what_it_may(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for file in files:
        ours = imported_packages(file.read_text()) & MAY_IMPORT.keys()
        forbidden = ours - MAY_IMPORT[package] - {package}
        assert not forbidden, f"{file.relative_to(ROOT)} imports {sorted(forbidden)}"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_init_only_re_exports(package: str) -> None:
    for node in ast.parse((ROOT / package / "__init__.py").read_text()).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_all = isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [
            "__all__"
        ]
        assert is_docstring or is_all or isinstance(node, ast.ImportFrom), ast.unparse(node)


def test_imports_are_seen_wherever_they_stand() -> None:
    source = "import a.b\nfrom c.d import e\ndef f():\n    from g import h\nfrom . import i\n"
    assert imported_packages(source) == {"a", "c", "g"}
