"""The records of a batch from columns: what a set of messages has in common is encoded once.

With values of one length, records of a batch differ only in offset delta and value.  So their bytes are one `join` over
[head, delta, lengths, value, head, delta, lengths, value, ...], where all but the values is constant or kept from
earlier batches, and nothing of Python runs for a single record.  A column that does vary becomes one more piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.records.record import Headers
from ottla.records.varint import VARINTS

_ATTRIBUTES: Final = b"\x00"
_NULL: Final = VARINTS[-1]
_NO_HEADERS: Final = VARINTS[0]
# Fewer records are faster encoded one by one.
_JOINED_RECORDS_MIN: Final = 4
# Where the varint of an offset delta becomes one byte longer.
_DELTA_ENDS: Final = ((1, 1 << 6), (2, 1 << 13), (3, 1 << 20), (4, 1 << 27))
_KEPT_DELTAS_MAX: Final = 1 << 16


class RecordColumns(NamedTuple):
    """The records of one batch by field.  `offset_deltas` is None for 0, 1, 2, ..."""

    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    offset_deltas: list[int] | None = None


def record_pieces(columns: RecordColumns) -> list[bytes]:
    """The encoded records, in pieces to join.  Timestamps are relative to the first."""
    timestamps_ms, keys, values, headers, offset_deltas = columns
    count = len(values)
    if count < _JOINED_RECORDS_MIN:
        return _one_by_one(columns)
    stamps = _timestamp_slot(timestamps_ms)
    rest = [*_content_slots(keys), *_content_slots(values), _headers_slot(headers)]
    if offset_deltas is not None:
        return _interleave([stamps, _varied([VARINTS[delta] for delta in offset_deltas]), *rest], count)
    pieces: list[bytes] = []
    for first, end, size_bytes in _delta_spans(count):
        deltas = _Varied(_OFFSET_DELTAS.span(first, end), size_bytes)
        pieces += _interleave(
            [_cut(stamps, first, end), deltas, *(_cut(slot, first, end) for slot in rest)], end - first
        )
    return pieces


def encode_record(
    timestamp_delta_ms: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record: length varint, attributes int8, timestamp delta, offset delta, key, value, headers."""
    stamp, delta = VARINTS[timestamp_delta_ms], VARINTS[offset_delta]
    body = b"".join((_ATTRIBUTES, stamp, delta, _encode_content(key), _encode_content(value), _encode_headers(headers)))
    return VARINTS[len(body)] + body


def _one_by_one(columns: RecordColumns) -> list[bytes]:
    timestamps_ms, keys, values, headers, offset_deltas = columns
    base_ms = timestamps_ms[0]
    deltas = range(len(values)) if offset_deltas is None else offset_deltas
    return [
        encode_record(timestamp_ms - base_ms, delta, key, value, names)
        for timestamp_ms, delta, key, value, names in zip(timestamps_ms, deltas, keys, values, headers, strict=True)
    ]


def _encode_content(content: bytes | None) -> bytes:
    return _NULL if content is None else VARINTS[len(content)] + content


def _encode_headers(headers: Headers) -> bytes:
    if not headers:
        return _NO_HEADERS
    parts = [VARINTS[len(headers)]]
    for name, content in headers:
        parts += (_encode_content(name.encode()), _encode_content(content))
    return b"".join(parts)


class _OffsetDeltas:
    """The varints of 0, 1, 2, ..., kept as far as batches have needed them."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def span(self, first: int, end: int) -> list[bytes]:
        kept = self._kept
        if len(kept) < min(end, _KEPT_DELTAS_MAX):
            # Never extended in place: another thread may do the same at this moment.
            kept = self._kept = [*kept, *map(VARINTS.__getitem__, range(len(kept), min(end, _KEPT_DELTAS_MAX)))]
        return kept[first:end] + [VARINTS[delta] for delta in range(max(first, _KEPT_DELTAS_MAX), end)]


_OFFSET_DELTAS: Final = _OffsetDeltas()


class _Varied(NamedTuple):
    """A piece for each record.  `sizes` is one number when all are of one size."""

    pieces: Sequence[bytes]
    sizes: int | Sequence[int]


# One field of every record; `bytes` are the same for all of them.
_Slot = bytes | _Varied


def _varied(pieces: Sequence[bytes]) -> _Varied:
    return _Varied(pieces, _one_or_all(list(map(len, pieces))))


def _one_or_all(sizes: list[int]) -> int | list[int]:
    return sizes[0] if sizes.count(sizes[0]) == len(sizes) else sizes


def _cut(slot: _Slot, first: int, end: int) -> _Slot:
    if isinstance(slot, bytes):
        return slot
    return _Varied(slot.pieces[first:end], slot.sizes if isinstance(slot.sizes, int) else slot.sizes[first:end])


def _delta_spans(count: int) -> Iterator[tuple[int, int, int]]:
    """Ranges of dense offset deltas (first, end) whose varints have one size, and the size."""
    first = 0
    for size_bytes, end in _DELTA_ENDS:
        if first < count:
            yield first, min(end, count), size_bytes
            first = end
    assert count <= first, "a batch of more records would be larger than any limit"


def _timestamp_slot(timestamps_ms: list[int]) -> _Slot:
    base_ms = timestamps_ms[0]
    if timestamps_ms.count(base_ms) == len(timestamps_ms):
        return _ATTRIBUTES + VARINTS[0]
    # A batch is collected within a few milliseconds: few of them differ.
    pieces = {each_ms: _ATTRIBUTES + VARINTS[each_ms - base_ms] for each_ms in set(timestamps_ms)}
    return _varied(list(map(pieces.__getitem__, timestamps_ms)))


def _content_slots(contents: list[bytes | None]) -> list[_Slot]:
    """The slots of keys or values: length and content."""
    first = contents[0]
    # Identity first: comparing the contents themselves would cost more than it saves.
    if first is contents[-1] and contents.count(first) == len(contents):
        return [_encode_content(first)]
    try:
        sizes = list(map(len, contents))  # type: ignore[arg-type]  # a null raises, and is rare
        plain: Sequence[bytes] = contents  # type: ignore[assignment]  # so there is none
    except TypeError:
        sizes = [-1 if content is None else len(content) for content in contents]
        plain = [content or b"" for content in contents]
        return [_varied([VARINTS[size] for size in sizes]), _Varied(plain, [max(size, 0) for size in sizes])]
    one_or_all = _one_or_all(sizes)
    if isinstance(one_or_all, int):
        return [VARINTS[one_or_all], _Varied(plain, one_or_all)]
    return [_varied([VARINTS[size] for size in sizes]), _Varied(plain, sizes)]


def _headers_slot(headers: list[Headers]) -> _Slot:
    first = headers[0]
    if first is headers[-1] and headers.count(first) == len(headers):
        return _encode_headers(first)
    return _varied([_encode_headers(each) for each in headers])


def _interleave(slots: Sequence[_Slot], count: int) -> list[bytes]:
    """The pieces of `count` records in order: what the slots hold for each, after the record's length."""
    columns: list[bytes | Sequence[bytes]] = [_lengths(slots)]
    for slot in slots:
        column = slot if isinstance(slot, bytes) else slot.pieces
        last = columns[-1]
        if isinstance(column, bytes) and isinstance(last, bytes):
            columns[-1] = last + column
        else:
            columns.append(column)
    first, last = columns[0], columns[-1]
    if not (isinstance(first, bytes) and isinstance(last, bytes)):
        return _weave(columns, count)
    # The end of a record and the start of the next are one piece.
    pieces = _weave([last + first, *columns[1:-1]], count)
    pieces[0] = first
    pieces.append(last)
    return pieces


def _weave(columns: Sequence[bytes | Sequence[bytes]], count: int) -> list[bytes]:
    pieces = [b""] * (len(columns) * count)
    for index, column in enumerate(columns):
        pieces[index :: len(columns)] = [column] * count if isinstance(column, bytes) else column
    return pieces


def _lengths(slots: Sequence[_Slot]) -> bytes | list[bytes]:
    """The length field of the records."""
    fixed_bytes = 0
    varied: list[Sequence[int]] = []
    for slot in slots:
        if isinstance(slot, bytes):
            fixed_bytes += len(slot)
        elif isinstance(slot.sizes, int):
            fixed_bytes += slot.sizes
        else:
            varied.append(slot.sizes)
    if not varied:
        return VARINTS[fixed_bytes]
    if len(varied) == 1:
        return [VARINTS[fixed_bytes + size] for size in varied[0]]
    return [VARINTS[fixed_bytes + sum(sizes)] for sizes in zip(*varied, strict=True)]
