"""The documentation as text: pages, their fenced blocks, their links and headings.

The word behind a fence says how a block is tested:

    sh       runs, after the blocks before it on its page; README's first, so that its fleet is there
    console  does not run here: it needs an engine, a cluster, or minutes. Its flags must exist
    python   runs; one that speaks to 127.0.0.1 runs beside README's fleet
    yaml     is a router's configuration, or the chart's values where it begins with ``# values.yaml``
    json     parses; a decision or a finding has exactly the fields of one
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; ``where`` is its page and line."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Every block of these languages, page by page."""
    return [block for page in PAGES for block in _blocks(page) if block.language in languages]


def links(page: Path) -> list[str]:
    """Targets of the page's links, those in blocks left out."""
    return _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What a link can point to within the page, as GitHub makes it from headings."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {_anchor(heading) for heading in _HEADING.findall(text)}


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found.group(1), found.group(2))


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
