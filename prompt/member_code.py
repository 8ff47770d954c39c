"""Code of templates that takes members of plain dictionaries in place, as messages are full of them.

    message.role  ─▶  (m['role'] if type(m) is dict and 'role' in m else environment.getattr(m, 'role'))

What is no dictionary, lacks the member, or names one of a dictionary's own attributes goes the sandbox's way.
"""

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

DICT_ATTRIBUTES = frozenset(dir(dict))


class MemberCode(CodeGenerator):
    """Writes the code."""

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        """``name.member``."""
        is_short = self._visit_member(node.node, node.attr, frame)
        super().visit_Getattr(node, frame)
        self.write(")" * is_short)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """``name['member']``."""
        member = node.arg.value if isinstance(node.arg, nodes.Const) else None
        is_short = self._visit_member(node.node, member, frame)
        super().visit_Getitem(node, frame)
        self.write(")" * is_short)

    def _visit_member(self, owner: nodes.Expr, member: object, frame: Frame) -> bool:
        """The short way's part of the expression; False where there is none."""
        if not isinstance(owner, nodes.Name) or type(member) is not str:
            return False
        if member in DICT_ATTRIBUTES or self.environment.is_async:
            return False
        self.write("(")
        self.visit(owner, frame)
        self.write(f"[{member!r}] if type(")
        self.visit(owner, frame)
        self.write(f") is dict and {member!r} in ")
        self.visit(owner, frame)
        self.write(" else ")
        return True
