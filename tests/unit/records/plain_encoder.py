"""Records encoded one by one as the format says it: what the encoder of whole sets must equal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.records.record import Record
from ottla.records.varint import append_varint


def plain_records(records: Sequence[Record], deltas: Iterable[int] | None = None) -> bytes:
    """The record area of an uncompressed batch; the records' own offsets are not used."""
    out = bytearray()
    for delta, record in zip(range(len(records)) if deltas is None else deltas, records, strict=True):
        body = bytearray(b"\x00")
        append_varint(body, record.timestamp_ms - records[0].timestamp_ms)
        append_varint(body, delta)
        _append_content(body, record.key)
        _append_content(body, record.value)
        append_varint(body, len(record.headers))
        for name, content in record.headers:
            _append_content(body, name.encode())
            _append_content(body, content)
        append_varint(out, len(body))
        out += body
    return bytes(out)


def _append_content(out: bytearray, content: bytes | None) -> None:
    if content is None:
        append_varint(out, -1)
    else:
        append_varint(out, len(content))
        out += content
