"""Lines of standard input as they arrive: during a pause of the writer the lines so far are sent."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from ottla.model.errors import OttlaError
from ottla.model.limits import KIB, MIB

_READ_BYTES: Final = 256 * KIB
LINE_BYTES_MAX: Final = 64 * MIB
BUSY_PAUSE_S: Final = 0.1


def input_lines(
    source: BinaryIO, linger_ms: int, is_busy: Callable[[], bool] = lambda: False
) -> Iterator[bytes | None]:
    """Each line without its end; None when no more input has arrived for `linger_ms`: time to send.

    While `is_busy` the pauses are reported repeatedly, for a caller that has other work.
    """
    # Pieces of a line whose end has not come: joined once, so that a long line costs what it is long.
    pieces: list[bytes] = []
    rest_bytes = 0
    for chunk in _chunks(source, linger_ms, is_busy):
        if chunk is None:
            yield None
            continue
        first, *lines = chunk.split(b"\n")
        pieces.append(first)
        rest_bytes += len(first)
        if lines:
            yield b"".join(pieces).removesuffix(b"\r")
            *whole, rest = lines
            yield from (line.removesuffix(b"\r") for line in whole)
            pieces, rest_bytes = [rest], len(rest)
        if rest_bytes > LINE_BYTES_MAX:
            raise OttlaError(f"a line is longer than {LINE_BYTES_MAX} bytes", hint="is the input text with line ends?")
    if rest_bytes:
        yield b"".join(pieces).removesuffix(b"\r")


def _chunks(source: BinaryIO, linger_ms: int, is_busy: Callable[[], bool]) -> Iterator[bytes | None]:
    try:
        descriptor = source.fileno()
    except (OSError, io.UnsupportedOperation):  # not a file: input inside a test
        yield source.read()
        return
    is_quiet = False
    while True:
        # Windows can select sockets only: there every read counts as a pause.
        wait_s = BUSY_PAUSE_S if is_quiet and is_busy() else None if is_quiet else linger_ms / 1000
        ready = sys.platform == "win32" or select.select([descriptor], [], [], wait_s)[0]
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
