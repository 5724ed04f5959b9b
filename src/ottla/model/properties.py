"""Java's `.properties` format, as far as `server.properties` and `client.properties` files use it.

Lines are `name=value`, `name:value` or `name value`; `#` and `!` begin comments; a backslash at the end joins the next
line, and before a character it escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.model.errors import ConfigError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS: Final = " \t\f"
_WRITTEN: Final = {ord("\\"): "\\\\", **{ord(text): f"\\{letter}" for letter, text in _ESCAPES.items()}}
# The other signs at which Python ends a line.
_WRITTEN_ENDS: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\v\x1c\x1d\x1e\x85\u2028\u2029"}


class Property(NamedTuple):
    name: str
    text: str
    line_number: int


def parse_properties(content: str) -> Iterator[Property]:
    """The properties in order, repeated names included.  Raises `ConfigError`."""
    for line_number, line in _logical_lines(content):
        end = _name_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANKS)
        yield Property(_unescaped(line[:end], line_number), _unescaped(rest, line_number), line_number)


def property_line(name: str, text: str) -> str:
    """The line, with its end, that `parse_properties` reads as this name and text.  `name` is that of a setting."""
    written = text.translate(_WRITTEN | _WRITTEN_ENDS)
    # Blanks in front of a text are skipped.
    escape = "\\" if written.startswith(" ") else ""
    return f"{name}={escape}{written}\n"


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with continued lines joined; each with the number of its first."""
    pending = ""
    first_number = 0
    for number, raw in enumerate(content.splitlines(), start=1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first_number = number
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2 == 1:
            pending += line[:-1]
            continue
        yield first_number, pending + line
        pending = ""
    if pending:
        yield first_number, pending


def _name_end(line: str) -> int:
    """The end of the name: the first unescaped separator."""
    is_escaped = False
    for index, character in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character in "=:" or character in _BLANKS:
            return index
    return len(line)


def _unescaped(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    characters = iter(text)
    result: list[str] = []
    for character in characters:
        if character != "\\":
            result.append(character)
            continue
        following = next(characters, "")
        if following == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            result.append(_unicode(digits, line_number))
        else:
            result.append(_ESCAPES.get(following, following))
    return "".join(result)


def _unicode(digits: str, line_number: int) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"line {line_number}: \\u{digits} is not an escape", hint="write \\u and four hex digits")
    return chr(int(digits, 16))
