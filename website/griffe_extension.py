"""What mkdocstrings calls with each object that it has read."""

from __future__ import annotations

from typing import Final

import griffe

from website.docstrings import as_markdown, with_members

# `_Named` is the base of the enumerations of access rules.
_ENUMERATIONS: Final = frozenset({"Enum", "IntEnum", "StrEnum", "_Named"})


class MarkdownDocstrings(griffe.Extension):  # type: ignore[misc]  # griffe is installed where the site is built
    """Every docstring becomes Markdown; that of an enumeration names its values, of a named tuple its fields."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        attributes = [each for each in cls.attributes.values() if not each.name.startswith("_")]
        bases = [str(base) for base in cls.bases]
        if cls.docstring is None:
            return
        if "NamedTuple" in bases:
            fields = [f"{each.name}: {each.annotation}" for each in attributes if each.annotation is not None]
            cls.docstring.value = with_members(cls.docstring.value, "Fields", fields)
        elif any(base in _ENUMERATIONS for base in bases):
            values = [each.name for each in attributes if each.value is not None]
            cls.docstring.value = with_members(cls.docstring.value, "Values", values)
