"""Pieces of a Markdown page."""

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `python -m scripts.write_reference`; change the code it is made from. -->"


def page(title: str, *parts: str) -> str:
    """A whole page: title, note, parts with a blank line between them."""
    return "\n\n".join((f"# {title}", NOTE, *parts)) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown, bars in them are escaped."""
    lines = [_row(headings), _row(["---"] * len(headings))]
    return "\n".join(lines + [_row(cell.replace("|", "\\|") for cell in row) for row in rows])


def code(text: str) -> str:
    """Text as code; nothing where there is none."""
    return f"`{text}`" if text else ""


def prose(text: str) -> str:
    """A docstring's text in Markdown: one backtick for two, one line."""
    return " ".join(text.replace("``", "`").split())


def sentence(text: str) -> str:
    """The same with a capital at its start and a stop at its end; a name such as vLLM stays as it is."""
    line = prose(text).rstrip(".;")
    is_name = any(letter.isupper() for letter in line.partition(" ")[0][1:])
    return f"{line if is_name else line[:1].upper() + line[1:]}." if line else ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
