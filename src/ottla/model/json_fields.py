"""The fields of a JSON object that another program may have written: each has its type, or the object is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

from ottla.model.errors import WireError
from ottla.model.limits import INT64_MAX


class JsonFields:
    """What is missing or wrong is a WireError that names `what`, "an audit message"."""

    def __init__(self, what: str, data: bytes, bytes_max: int) -> None:
        """Raises WireError for more than `bytes_max`, and for what is no JSON object."""
        if len(data) > bytes_max:
            raise WireError(f"{what} of {len(data)} bytes")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{what} that is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise WireError(f"{what} that is no JSON object")
        self._what = what
        self._found: Mapping[str, object] = found

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def is_null(self, name: str) -> bool:
        """Whether it is missing, or null."""
        return self._found.get(name) is None

    def text(self, name: str) -> str:
        value = self._found.get(name)
        if not isinstance(value, str):
            raise WireError(f"{self._what}: {name} is no text")
        return value

    def number(self, name: str, minimum: int, maximum: int = INT64_MAX) -> int:
        value = self._found.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise WireError(f"{self._what}: {name} is no whole number from {minimum} to {maximum}")
        return value

    def truth(self, name: str) -> bool:
        value = self._found.get(name)
        if not isinstance(value, bool):
            raise WireError(f"{self._what}: {name} is neither true nor false")
        return value

    def uuid(self, name: str) -> UUID:
        try:
            return UUID(self.text(name))
        except ValueError:
            raise WireError(f"{self._what}: {name} is no UUID") from None
