"""Cells of tables: git hosts and Python's Markdown read a bar in code in different ways."""

from __future__ import annotations

import re
from typing import Final

_CODE: Final = re.compile(r"`[^`]*`")


def with_plain_bars(markdown: str) -> str:
    r"""Without the backslash before a bar in a cell's code, which only a git host needs: `a\|b`."""
    lines = markdown.split("\n")
    return "\n".join(_plain(line) if line.startswith("|") else line for line in lines)


def _plain(row: str) -> str:
    return _CODE.sub(lambda code: code.group().replace("\\|", "|"), row)
