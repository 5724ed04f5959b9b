"""The known name nearest to an unknown one: for `did you mean`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Similar enough that a typing error is likelier than another meaning.
_SIMILARITY_MIN: Final = 0.75
# Longer names are not typed by hand, and the comparison is quadratic.
_NAME_LENGTH_MAX: Final = 100


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be; None when none is near."""
    if len(name) > _NAME_LENGTH_MAX:
        return None
    # Only mistakes need it.
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1, cutoff=_SIMILARITY_MIN)
    return found[0] if found else None
