"""Whether a chat template takes a message's content as one string or as a list of parts.

Engines look at the template's syntax tree: a template that loops over the content of a message takes
parts, any other takes a string. The answer must be theirs, not a better one, since it decides the tokens.
Names are followed through assignments, filters, tests and slices, but not into macros, and scopes are
not told apart.

Source: vLLM 0.32. SGLang (0.5.17 to 0.5.23) looks for a loop over the content of ``message``, ``msg`` or ``m``, and
takes any template that mentions image, audio, video or vision for one that wants parts.
"""

from collections.abc import Set
from enum import StrEnum

from jinja2 import nodes

_OF_MEDIA = ("image", "audio", "video", "vision")
_SGLANGS_ITEMS = frozenset({"message", "msg", "m"})


class ContentFormat(StrEnum):
    """The form in which a template wants the content of messages."""

    STRING = "string"
    PARTS = "parts"


def content_format(tree: nodes.Template) -> ContentFormat:
    """The form that the template with this syntax tree wants; O(tree × names of the list)."""
    lists = _names_of_messages(tree)
    loops = list(tree.find_all(nodes.For))
    items = {
        loop.target.name
        for loop in loops
        if isinstance(loop.target, nodes.Name) and _is_name(_peel(loop.iter), lists)
    }
    has_content_loop = any(_is_content(_peel(loop.iter), items) for loop in loops)
    return ContentFormat.PARTS if has_content_loop else ContentFormat.STRING


def sglang_content_format(source: str, tree: nodes.Template) -> ContentFormat:
    """The form that SGLang finds it to want; O(tree)."""
    if any(word in source for word in _OF_MEDIA):
        return ContentFormat.PARTS
    loops = tree.find_all(nodes.For)
    has_content_loop = any(_is_content(_peel(loop.iter), _SGLANGS_ITEMS) for loop in loops)
    return ContentFormat.PARTS if has_content_loop else ContentFormat.STRING


def _names_of_messages(tree: nodes.Template) -> Set[str]:
    """``messages`` and every name that it is assigned to, directly or through other such names."""
    assignments = [
        (node.target.name, _peel(node.node))
        for node in tree.find_all(nodes.Assign)
        if isinstance(node.target, nodes.Name)
    ]
    names = {"messages"}
    while True:
        grown = names | {target for target, value in assignments if _is_name(value, names)}
        if grown == names:
            return names
        names = grown


def _peel(node: nodes.Node | None) -> nodes.Node | None:
    """The expression inside any filters, tests and slices around it."""
    while True:
        match node:
            case nodes.Filter() | nodes.Test():
                node = node.node
            case nodes.Getitem(arg=nodes.Slice()):
                node = node.node
            case _:
                return node


def _is_name(node: nodes.Node | None, names: Set[str]) -> bool:
    return isinstance(node, nodes.Name) and node.name in names


def _is_content(node: nodes.Node | None, items: Set[str]) -> bool:
    match node:
        case nodes.Getattr(attr="content"):
            return _is_name(node.node, items)
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return _is_name(node.node, items)
        case _:
            return False
