"""Lines of standard input as they arrive: during a pause of the writer the lines so far are sent."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from ottla.model.errors import OttlaError
from ottla.model.limits import KIB, MIB

_READ_BYTES: Final = 256 * KIB
LINE_BYTES_MAX: Final = 64 * MIB


def input_lines(source: BinaryIO, linger_ms: int) -> Iterator[bytes | None]:
    """Each line without its end; None when no more input has arrived for `linger_ms`: time to send."""
    rest = b""
    for chunk in _chunks(source, linger_ms):
        if chunk is None:
            yield None
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)
        if len(rest) > LINE_BYTES_MAX:
            raise OttlaError(f"a line is longer than {LINE_BYTES_MAX} bytes", hint="is the input text with line ends?")
    if rest:
        yield rest.removesuffix(b"\r")


def _chunks(source: BinaryIO, linger_ms: int) -> Iterator[bytes | None]:
    try:
        descriptor = source.fileno()
    except (OSError, io.UnsupportedOperation):  # not a file: input inside a test
        yield source.read()
        return
    is_quiet = False
    while True:
        # Windows can select sockets only: there every read counts as a pause.
        ready = (
            sys.platform == "win32" or select.select([descriptor], [], [], None if is_quiet else linger_ms / 1000)[0]
        )
        if not ready:
            is_quiet = True
            yield None
            continue
        is_quiet = False
        chunk = _read(source)
        if not chunk:
            return
        yield chunk


def _read(source: BinaryIO) -> bytes:
    raw = getattr(source, "raw", None)
    chunk = raw.read(_READ_BYTES) if raw is not None else source.read(_READ_BYTES)
    assert isinstance(chunk, bytes | None)
    return chunk or b""
