"""Docstrings read back: the first paragraph, and what ``Attributes:`` says of each name."""

import inspect
import re

_ENTRY = re.compile(r"^    (\w[\w, ]*): (.*)$")


def intro(documented: object) -> str:
    """The first paragraph."""
    return (inspect.getdoc(documented) or "").partition("\n\n")[0]


def attributes(documented: object) -> dict[str, str]:
    """Name → text of the section ``Attributes:``, continuation lines joined."""
    found: dict[str, str] = {}
    names: list[str] = []
    _, _, section = (inspect.getdoc(documented) or "").partition("\nAttributes:\n")
    for line in section.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            names = entry.group(1).split(", ")
            found |= dict.fromkeys(names, entry.group(2))
        elif line.startswith("        "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            break
    return found
