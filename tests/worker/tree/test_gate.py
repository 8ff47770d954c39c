"""By construction: one file makes copies readable or takes them away, and it alone publishes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import worker.tree.residence as gate

WORKER = Path(gate.__file__).parent.parent
GATE = "tree/residence.py"
WATCHED = {"host", "is_on_device"}

Store = tuple[str, str]
"""Function and attribute. A name that is not written out could be any, and is told as ``?``."""

ALLOWED: dict[str, set[Store]] = {
    GATE: {
        ("arrive", "is_on_device"), ("arrive", "host"), ("leave", "is_on_device"), ("leave", "host"),
    },
    # A new node has nothing.
    "tree/node.py": {("__init__", "is_on_device"), ("__init__", "host")},
    # The empty prefix is everywhere; the upper part of a split has what the whole had.
    "tree/structure.py": {
        ("__init__", "is_on_device"), ("_inherit", "is_on_device"), ("_inherit", "host"),
    },
    # A copy on its way, which is not readable.
    "tree/backup.py": {("_issue_one", "host")},
    # The pool of this name, no node's copy.
    "tree/core.py": {("_build", "host")},
}  # fmt: skip


def stores(source: str) -> Iterator[Store]:
    """Every way to give a watched attribute a value: any target, ``setattr`` and the like, ``replace``."""
    return _stores(ast.parse(source), "")


def _stores(node: ast.AST, function: str) -> Iterator[Store]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            function = node.name
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            yield from ((function, one) for one in WATCHED & {name})
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)):
            yield from ((function, one) for one in {*WATCHED, "?"} & _set_by(called, node))
    for child in ast.iter_child_nodes(node):
        yield from _stores(child, function)


def _set_by(called: str, call: ast.Call) -> set[str]:
    """Names of attributes that a call sets."""
    if called == "replace":
        return {keyword.arg or "?" for keyword in call.keywords}
    if called in {"setattr", "delattr", "__setattr__", "__delattr__"}:
        constants = [one.value for one in call.args[:2] if isinstance(one, ast.Constant)]
        return {str(one) for one in constants} or {"?"}
    return {"?"} if called in {"__set__", "__delete__", "__setstate__"} else set()


def modules() -> list[tuple[str, str]]:
    """Path below the package, source."""
    return [(str(p.relative_to(WORKER)), p.read_text()) for p in sorted(WORKER.rglob("*.py"))]


WAYS = [
    "node.host = x",
    "a = node.host = x",
    "node.host, y = x",
    "[y, *node.host] = x",
    "(a, (b, node.host)) = x",
    "node.host: HostState = x",
    "node.host |= x",
    "del node.host",
    "for node.host in x: pass",
    "with x as node.host: pass",
    "[0 for node.host in x]",
    "setattr(node, 'host', x)",
    "node.__setattr__('host', x)",
    "object.__setattr__(node, 'host', x)",
    "setattr(node, name, x)",
    "Node.host.__set__(node, x)",
    "replace(node, host=x)",
    "dataclasses.replace(node, **x)",
]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_set_an_attribute_is_seen(way: str) -> None:
    ((function, name),) = stores(f"async def f():\n    {way}")
    assert function == "f"
    assert name in {"host", "?"}


@pytest.mark.parametrize(
    "harmless",
    ["x = node.host", "host = x", "text.replace('host', x)", "setattr(node, 'pages', x)"],
)
def test_what_sets_no_watched_attribute_is_let_through(harmless: str) -> None:
    assert not list(stores(harmless))


def test_only_the_gate_changes_what_is_readable() -> None:
    """Each allowed place once: a second store beside it would be another path."""
    found = {path: sorted(stores(source)) for path, source in modules()}
    allowed = {path: sorted(places) for path, places in ALLOWED.items()}
    assert {path: places for path, places in found.items() if places} == allowed


def test_a_copy_on_its_way_is_not_readable() -> None:
    tree = ast.parse((WORKER / "tree/backup.py").read_text())
    values = [
        ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".host")
    ]
    assert values == ["HostState.IN_FLIGHT"]


def test_only_the_gate_publishes() -> None:
    for path, source in modules():
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call)
        }
        published = {call for call in calls if "recorder." in call and not call.endswith("take")}
        assert path == GATE or not published, f"{path} publishes: {published}"
