"""The content of nodes: small JSON objects with a `version`, as early Kafka wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

from ottla.model.errors import OttlaError
from ottla.model.identifiers import uuid_from_text


class NodeDamaged(OttlaError):
    """A node's content is not in this program's format."""

    hint = "another program wrote to the tree: correct the node, or restore the tree from a backup"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"tree node {path}: {problem}")
        self.path = path


def encode(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class Fields:
    """A node's JSON object, read with types; an unexpected field raises `NodeDamaged`."""

    def __init__(self, path: str, content: Mapping[str, object]) -> None:
        self.path = path
        self.content = content

    @classmethod
    def parse(cls, path: str, data: bytes, *, version_max: int = 1) -> Fields:
        """Read an object whose `version` this program knows; writers raise it only for incompatible changes."""
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:  # the latter: nested deeper than any content of Ottla
            raise NodeDamaged(path, f"is not JSON: {error}") from error
        fields = cls._of(path, content)
        version = fields.integer("version")
        if not 1 <= version <= version_max:
            raise NodeDamaged(path, f"has version {version}, this program knows 1 to {version_max}")
        return fields

    def integer(self, name: str) -> int:
        value = self.content.get(name)
        if type(value) is not int:  # a JSON `true` is no number
            raise NodeDamaged(self.path, f"{name!r} should be an integer, not {value!r}")
        return value

    def levels(self, name: str) -> Mapping[str, int]:
        """Numbers by name; empty where the node has no such field."""
        found = self.content.get(name, {})
        if not isinstance(found, dict) or not all(type(level) is int for level in found.values()):
            raise NodeDamaged(self.path, f"{name!r} should have a number for each name, not {found!r}")
        return found

    def text(self, name: str) -> str:
        value = self.content.get(name)
        if not isinstance(value, str):
            raise NodeDamaged(self.path, f"{name!r} should be a string, not {value!r}")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.content.get(name) is None else self.text(name)

    def integers(self, name: str) -> list[int]:
        values = self._array(name)
        if any(type(value) is not int for value in values):
            raise NodeDamaged(self.path, f"{name!r} should hold integers, not {values!r}")
        return [value for value in values if isinstance(value, int)]

    def texts(self, name: str) -> list[str]:
        values = self._array(name)
        if any(not isinstance(value, str) for value in values):
            raise NodeDamaged(self.path, f"{name!r} should hold strings, not {values!r}")
        return [value for value in values if isinstance(value, str)]

    def nested(self, name: str) -> Fields:
        return self._of(self.path, self.content.get(name))

    def text_map(self, name: str) -> dict[str, str]:
        values = self.nested(name).content
        if any(not isinstance(value, str) for value in values.values()):
            raise NodeDamaged(self.path, f"{name!r} should map names to strings")
        return {key: value for key, value in values.items() if isinstance(value, str)}

    def uuid_of(self, text: str) -> UUID:
        """An id held as text in one of the fields."""
        try:
            return uuid_from_text(text)
        except ValueError as error:
            raise NodeDamaged(self.path, str(error)) from error

    def _array(self, name: str) -> list[object]:
        values = self.content.get(name)
        if not isinstance(values, list):
            raise NodeDamaged(self.path, f"{name!r} should be an array, not {values!r}")
        return values

    @staticmethod
    def _of(path: str, content: object) -> Fields:
        if not isinstance(content, dict):
            raise NodeDamaged(path, f"should hold an object, not {content!r}")
        return Fields(path, content)
