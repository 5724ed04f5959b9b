"""Both forms of the encoder, numpy's and the compiled one, whether or not the package was built with a compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final
from unittest import mock

from ottla.spark.arrow import compiled_rows
from ottla.spark.arrow.compiled_rows import RowLibrary, load_row_library
from tests.compiled_decoder import NUMPY, compile_library

SOURCE: Final = Path(compiled_rows.__file__).with_name("record_rows.c")


@cache
def row_library() -> RowLibrary:
    """Skips the test where there is no C compiler."""
    with tempfile.TemporaryDirectory() as directory:
        library = load_row_library(compile_library(SOURCE.read_text(), Path(directory)))
    assert library is not None
    return library


@contextmanager
def encoding_with(form: str) -> Iterator[None]:
    library = None if form == NUMPY else row_library()
    with mock.patch.object(compiled_rows, "COMPILED", library):
        yield
