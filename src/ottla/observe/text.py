"""Untrusted text, made safe for a log or a terminal: escaped and truncated.

Client ids, topic names and error texts may come from a peer.  Line breaks, escape sequences and direction marks become
visible escapes, so a value cannot leave its field or its line.
"""

from __future__ import annotations

import re
from typing import Final

# Enough for every legal topic name (249); longer values are attacks or accidents.
VALUE_LENGTH_MAX: Final = 256
# A line of a traceback may hold a source line and a long path.
LINE_LENGTH_MAX: Final = 1_000

_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/@+,\[\]{}()<>*%#~^$!?;&|-]+\Z", re.ASCII)
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'}


def safe_value(value: object) -> str:
    """A fact in a log line: bare when plain, else in double quotes with escapes."""
    if value is None:
        return "none"
    if value is True or value is False:
        return "true" if value else "false"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    kept = text[:VALUE_LENGTH_MAX]
    shown = kept if _PLAIN.match(kept) is not None else f'"{escaped(kept)}"'
    left_out = len(text) - len(kept)
    return f"{shown}...+{left_out}" if left_out else shown


def safe_line(text: str) -> str:
    """A line of free text, for a person to read: escaped where necessary, truncated, without quotes."""
    return safe_text(text[:LINE_LENGTH_MAX])


def safe_text(text: str) -> str:
    """The same without a length limit: for data that a person requested."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def escaped(text: str) -> str:
    """Text for between double quotes: quotes, backslashes and all that is not printable as escapes."""
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
