"""Data as YAML, for people who read it and programs that parse it.

Texts that YAML 1.1 or 1.2 could take for another type are quoted, as JSON has them: `no`, `1e3`, `2026-03-01`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

# A first letter or slash, so that it is no number, date or tag; and no colon, which may end a key.
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_OTHER_TYPES: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def yaml_lines(data: object) -> list[str]:
    """One document, with the line that starts it.  `data` is what `json.dumps` takes."""
    return ["---", *_lines(data)]


def _lines(data: object) -> Iterator[str]:
    if isinstance(data, Mapping) and data:
        for name, value in data.items():
            yield from _entry(f"{_text(str(name))}:", value)
    elif _is_list(data) and data:
        for each in data:  # type: ignore[attr-defined]
            below = list(_lines(each))
            yield f"- {below[0]}"
            yield from (f"  {line}" for line in below[1:])
    else:
        yield _scalar(data)


def _entry(head: str, value: object) -> Iterator[str]:
    if value and (isinstance(value, Mapping) or _is_list(value)):
        yield head
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _is_list(data: object) -> bool:
    return isinstance(data, Sequence) and not isinstance(data, str)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = json.dumps(value)
    if isinstance(value, float) and "." not in text:  # 1e+16: a number has a point in YAML 1.1
        text = text.replace("e", ".0e")
    return text


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _OTHER_TYPES:
        return text
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
