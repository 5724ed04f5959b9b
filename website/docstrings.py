"""Docstrings as Markdown: their columns become tables, and code becomes a block of code."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from typing import Final

_COLUMN: Final = re.compile(r"\S {2,}(?=\S)")
_NAMES: Final = re.compile(r"\w+(?:\([^)]*\))?(?:, ?\w+(?:\([^)]*\))?)*,?")
_BLANK_LINES: Final = re.compile(r"\n[ \t]*\n")


def as_markdown(docstring: str) -> str:
    return "\n\n".join(map(_block, _BLANK_LINES.split(docstring)))


def with_members(markdown: str, kind: str, names: list[str]) -> str:
    """The text of a class, and a line with its members, which have no text."""
    return f"{markdown.rstrip()}\n\n{kind}: {', '.join(f'`{name}`' for name in names)}." if names else markdown


def _block(text: str) -> str:
    lines = text.strip("\n").splitlines()
    if is_code(text):
        return f"```python\n{textwrap.dedent(text).rstrip()}\n```"
    column = column_of(lines)
    return text if column is None else _table(lines, column)


def is_code(text: str) -> bool:
    """Whether it is Python, and more than a name or a word."""
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return False
    return not all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Constant | ast.Tuple) for node in tree.body
    )


def column_of(lines: list[str]) -> int | None:
    """Where the second column of these lines starts, where they have two.

    A sentence may be followed by two spaces, too: no first column ends with a sentence.
    """
    starts = Counter(
        found.end() for line in lines if (found := _COLUMN.search(line)) and found.group()[0] not in ".:;?!"
    )
    if not starts or len(lines) < 2:
        return None
    ((column, _),) = starts.most_common(1)
    return column if all(_is_row(line, column) or _is_open(line) for line in lines) else None


def _is_row(line: str, column: int) -> bool:
    """A row, or the continuation of one."""
    return len(line) > column and line[column - 1] == " " and line[column] != " "


def _is_open(line: str) -> bool:
    """The names of a row, which its next line continues."""
    return line.endswith(",") and not line.startswith(" ")


def _table(lines: list[str], column: int) -> str:
    rows: list[tuple[str, str]] = []
    for line in lines:
        head, text = (line[:column].strip(), line[column:].strip()) if _is_row(line, column) else (line, "")
        if rows and (not head or rows[-1][0].endswith(",")):
            last_head, last_text = rows.pop()
            head, text = f"{last_head} {head}".strip(), f"{last_text} {text}".strip()
        rows.append((head, text))
    cells = [f"| {_head(head)} | {_escaped(text)} |" for head, text in rows]
    return "\n".join(["| name | meaning |", "| --- | --- |", *cells])


def _head(text: str) -> str:
    if _NAMES.fullmatch(text) is None:
        return _escaped(text)
    return ", ".join(f"`{name.strip()}`" for name in re.split(r",(?![^(]*\))", text) if name.strip())


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
