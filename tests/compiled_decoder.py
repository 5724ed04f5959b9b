"""Both forms of the decoder, numpy's and the compiled one, whether or not the package was built with a compiler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from ottla.spark.arrow import compiled_fields
from ottla.spark.arrow.compiled_fields import ReadFields, load_library

NUMPY: Final = "numpy"
COMPILED: Final = "compiled"
FORMS: Final = (NUMPY, COMPILED)
SOURCE: Final = Path(compiled_fields.__file__).with_name("record_fields.c")


@cache
def compiled_reader() -> ReadFields:
    """Skips the test where there is no C compiler."""
    with tempfile.TemporaryDirectory() as directory:
        reader = load_library(compile_library(SOURCE.read_text(), Path(directory)))
    assert reader is not None
    return reader


def compile_library(source: str, directory: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (directory / "source.c").write_text(source)
    library = directory / "compiled.so"
    command = [compiler, "-O2", "-std=c11", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", library, directory / "source.c"], check=True)
    return library


@contextmanager
def decoding_with(form: str) -> Iterator[None]:
    reader = None if form == NUMPY else compiled_reader()
    with mock.patch.object(compiled_fields, "COMPILED", reader):
        yield
