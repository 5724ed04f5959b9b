"""The navigation of the site follows docs/index.md: a section for each heading, a page for each link of a list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_ENTRY: Final = re.compile(r"^\* \[([^\]]+)\]\(([^)#:]+\.md)\)", re.MULTILINE)
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)

Section = dict[str, list[dict[str, str]]]


def sections_of(index: str) -> list[Section]:
    """Sections without a list of pages have no place in it."""
    _, *parts = _SECTION.split(index)
    found: list[Section] = []
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        entries = [{title: path} for title, path in _ENTRY.findall(body)]
        if entries:
            found.append({heading: entries})
    return found


def pages_of(sections: Iterable[Section]) -> list[str]:
    """Every page, in its order."""
    return [
        path for section in sections for entries in section.values() for entry in entries for path in entry.values()
    ]
