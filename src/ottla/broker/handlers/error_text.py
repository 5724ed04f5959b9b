"""An error as the message of an answer."""

from __future__ import annotations

from typing import Final

from ottla.model.errors import OttlaError

# Messages quote what the client sent, which may be longer than the 32,767 bytes that an old version's string holds.
ERROR_TEXT_LENGTH_MAX: Final = 1_000


def error_text(error: OttlaError) -> str:
    """The message with its hint, cut where it is long."""
    text = str(error) if error.hint is None else f"{error}; {error.hint}"
    return text if len(text) <= ERROR_TEXT_LENGTH_MAX else text[: ERROR_TEXT_LENGTH_MAX - 3] + "..."
