"""What the broker reads of an X.509 certificate: its times, and its subject as Java writes it (RFC 2253).

The standard library gives a certificate's fields only after it has verified it, and not the encoding of names, on which
the text of a principal depends.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

from ottla.model.errors import OttlaError

COMMON_NAME_LENGTH_MAX: Final = 64
"""In characters (RFC 5280, ub-common-name)."""

_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_DIGITS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
# Strings, and how Java decodes them: UTF-8, printable, T61, IA5, general, BMP.
_STRINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
# The attribute types of RFC 2253; Java writes every other one as its number, with the value in hexadecimal.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
# Escaped at the start and the end of a value.
_OUTER: Final = " \r"


class CertificateDamaged(OttlaError):
    """Bytes that are not the DER encoding of a certificate."""


class Certificate(NamedTuple):
    not_before: datetime
    not_after: datetime
    # As `X500Principal.getName()` of Java: the last attribute first.
    subject: str

    @classmethod
    def parse(cls, der: bytes) -> Self:
        """Raises `CertificateDamaged`."""
        try:
            [certificate] = _elements(der)
            signed = next(_elements(certificate.body))
            parts = [part for part in _elements(signed.body) if part.tag != _VERSION]
            # Serial number, algorithm, issuer, validity, subject.
            not_before, not_after = (_time(part) for part in _elements(parts[3].body))
            return cls(not_before, not_after, _name(parts[4].body))
        except (ValueError, IndexError, StopIteration) as error:
            raise CertificateDamaged(f"the certificate is damaged: {error}") from error


class _Element(NamedTuple):
    tag: int
    body: bytes
    whole: bytes


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        tag, length, at = data[position], data[position + 1], position + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("an invalid length")
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        end = at + length
        if end > len(data):
            raise ValueError("an element ends after its parent")
        yield _Element(tag, data[at:end], data[position:end])
        position = end


def _time(element: _Element) -> datetime:
    return datetime.strptime(element.body.decode("ascii"), _DIGITS.get(element.tag, "")).replace(tzinfo=UTC)


def _name(sequence: bytes) -> str:
    relative_names = [
        "+".join(_attribute(*_elements(pair.body)) for pair in _elements(relative.body))
        for relative in _elements(sequence)
    ]
    return ",".join(reversed(relative_names))


def _attribute(kind: _Element, value: _Element) -> str:
    number = _object_id(kind.body)
    keyword = _KEYWORDS.get(number)
    encoding = _STRINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.body.decode(encoding))}"


def _escaped(text: str) -> str:
    leading = len(text) - len(text.lstrip(_OUTER))
    trailing = len(text.rstrip(_OUTER))
    return "".join(_escaped_character(c, is_outer=not leading <= at < trailing) for at, c in enumerate(text))


def _escaped_character(character: str, *, is_outer: bool) -> str:
    if character == "\0":
        return "\\00"
    return f"\\{character}" if character in _ESCAPED or (is_outer and character in _OUTER) else character


def _object_id(body: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in body:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
