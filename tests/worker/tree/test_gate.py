"""By construction: one file makes copies readable or takes them away, and it alone publishes."""

import ast
from pathlib import Path

import worker.tree.residence as gate

TREE = Path(gate.__file__).parent
GATE = "residence.py"
INHERITED = {("structure.py", "_inherit"), ("structure.py", "__init__"), ("node.py", "__init__")}


def functions(path: Path) -> list[ast.FunctionDef]:
    return [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)]


def assigned(function: ast.FunctionDef) -> set[str]:
    """Attributes set in a function, and states assigned to a host attribute."""
    found: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        names = {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
        if "host" in names and isinstance(node.value, ast.Attribute):
            names.add(node.value.attr)
        found |= names
    return found


def test_only_the_gate_changes_what_is_readable() -> None:
    for path in TREE.glob("*.py"):
        for function in functions(path):
            if path.name == GATE or (path.name, function.name) in INHERITED:
                continue
            changed = assigned(function) & {"is_on_device", "READABLE", "NONE"}
            assert not changed, f"{path.name}: {function.name} changes {changed}"


def test_only_the_gate_publishes() -> None:
    for path in TREE.glob("*.py"):
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        published = {call for call in calls if "recorder." in call and not call.endswith("take")}
        assert path.name == GATE or not published, f"{path.name} publishes: {published}"


def test_the_gate_is_one_pair_of_functions() -> None:
    changing = [f.name for f in functions(TREE / GATE) if "is_on_device" in assigned(f)]
    assert changing == ["arrive", "leave"]
