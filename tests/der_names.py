"""Distinguished names in DER, of any attribute type and string type, as an issuer of certificates may encode them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

UTF8: Final = 0x0C
_OBJECT_ID: Final = 0x06
_UTC_TIME: Final = 0x17
_SEQUENCE: Final = 0x30
_SET: Final = 0x31


class Attribute(NamedTuple):
    """`kind` is an object identifier in dots, `tag` the type of the string."""

    kind: str
    value: bytes
    tag: int = UTF8


def name_of(relative_names: Sequence[Sequence[Attribute]]) -> bytes:
    """In their order, each with its attributes in theirs; DER would sort the latter."""
    return _element(_SEQUENCE, b"".join(_element(_SET, b"".join(map(_pair, each))) for each in relative_names))


def certificate_of(relative_names: Sequence[Sequence[Attribute]]) -> bytes:
    """The parts of a certificate that hold its times and this subject; it has no key and no signature."""
    times = _element(_UTC_TIME, b"260102030405Z") * 2
    empty = _element(_SEQUENCE, b"")
    # Serial number, algorithm, issuer, validity, subject.
    signed = b"\x02\x01\x01" + empty + empty + _element(_SEQUENCE, times) + name_of(relative_names)
    return _element(_SEQUENCE, _element(_SEQUENCE, signed))


def _pair(attribute: Attribute) -> bytes:
    kind = _element(_OBJECT_ID, _object_id(attribute.kind))
    return _element(_SEQUENCE, kind + _element(attribute.tag, attribute.value))


def _element(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def _object_id(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    return b"".join(map(_base_128, (40 * first + second, *rest)))


def _base_128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(0x80 | number & 0x7F)
    return bytes(reversed(digits))
