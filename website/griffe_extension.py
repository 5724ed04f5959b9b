"""What mkdocstrings calls with each object that it has read."""

from __future__ import annotations

import griffe

from website.docstrings import as_markdown


class MarkdownDocstrings(griffe.Extension):  # type: ignore[misc]  # griffe is installed where the site is built
    """Every docstring becomes Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
