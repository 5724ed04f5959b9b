from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from ottla.cli.records import produce as module
from ottla.cli.records.produce import input_lines
from ottla.model.errors import OttlaError


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, int]]:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source:
        yield source, write_end


def test_input_lines_gives_lines_of_a_stream_that_is_no_file() -> None:
    assert list(input_lines(io.BytesIO(b"a\nb\r\n\nc"), 10)) == [b"a", b"b", b"", b"c"]


def test_input_lines_tells_a_pause_once_and_gives_what_comes_after_it(pipe: tuple[BinaryIO, int]) -> None:
    source, write_end = pipe
    os.write(write_end, b"one\ntw")
    lines = input_lines(source, 1)
    assert next(lines) == b"one"
    assert next(lines) is None
    os.write(write_end, b"o\n")
    assert next(lines) == b"two"
    os.write(write_end, b"end")
    os.close(write_end)
    assert list(lines)[-1] == b"end"


def test_input_lines_joins_a_line_that_comes_in_many_pieces(pipe: tuple[BinaryIO, int]) -> None:
    source, write_end = pipe
    for _ in range(50):
        os.write(write_end, b"x" * 1000)
    os.write(write_end, b"\nshort")
    os.close(write_end)
    assert [line for line in input_lines(source, 1) if line is not None] == [b"x" * 50_000, b"short"]


def test_input_lines_tells_pauses_while_its_caller_is_busy(pipe: tuple[BinaryIO, int]) -> None:
    source, write_end = pipe
    left = iter([True, True, False])
    lines = input_lines(source, 1, lambda: next(left))
    assert [next(lines), next(lines), next(lines)] == [None, None, None]
    os.write(write_end, b"end")
    os.close(write_end)
    assert list(lines)[-1] == b"end"


class _Pieces(io.RawIOBase):
    """Gives a line piece by piece, and says what was read."""

    def __init__(self, piece: bytes, count: int) -> None:
        self.left = [piece] * count + [b"\nshort"]

    def fileno(self) -> int:
        return 0

    def read(self, size: int = -1) -> bytes:
        return self.left.pop(0) if self.left else b""


def test_input_lines_copies_no_piece_of_a_long_line_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("select.select", lambda *_: ([0], [], []))
    copied_bytes = 0

    class Counted(bytes):
        def __radd__(self, other: bytes) -> bytes:
            nonlocal copied_bytes
            copied_bytes += len(other)
            return other + bytes(self)

    pieces, size = 400, 1_000
    source = _Pieces(Counted(b"x" * size), pieces)
    assert list(input_lines(source, 1)) == [b"x" * pieces * size, b"short"]  # type: ignore[arg-type]
    assert copied_bytes <= pieces * size, "each piece joined a copy of all before it"


def test_input_lines_refuses_a_line_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 100)
    with pytest.raises(OttlaError, match="longer than 100 bytes"):
        list(input_lines(io.BytesIO(b"x" * 101), 1))
