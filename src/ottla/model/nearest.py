"""The nearest known name to one that nobody knows: for `did you mean`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

# Similar enough that a slip of the finger is likelier than another meaning.
_SIMILARITY_MIN: Final = 0.75
# Longer names come from nobody's keyboard, and the comparison is quadratic.
_NAME_LENGTH_MAX: Final = 100


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be; None when nothing is near."""
    if len(name) > _NAME_LENGTH_MAX:
        return None
    found = get_close_matches(name, list(known), n=1, cutoff=_SIMILARITY_MIN)
    return found[0] if found else None
