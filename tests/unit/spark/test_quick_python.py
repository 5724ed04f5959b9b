"""The workers' Python: this interpreter, with one directory more on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ottla.spark.quick_python import quick_python, write_shim

SHOW = "import sys, shown; print(shown.PLACE, sys.executable, sys.argv[1:])"


@pytest.mark.parametrize("given", [None, "first"])
def test_shim_puts_its_packages_first_and_keeps_the_rest(tmp_path: Path, given: str | None) -> None:
    for place in ("a 'strange' folder", "first"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "shown.py").write_text(f"PLACE = {place!r}")
    (tmp_path / "first" / "other.py").write_text("")
    shim = write_shim(tmp_path / "python", tmp_path / "a 'strange' folder")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = SHOW
    if given is not None:
        environment["PYTHONPATH"] = str(tmp_path / given)
        program = f"import other; {SHOW}"
    command = [str(shim), "-c", program, "two words", "$HOME"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"a 'strange' folder {sys.executable} ['two words', '$HOME']\n"


def test_quick_python_imports_the_installed_pyspark_although_another_is_first_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('as from the zip file')")
    command = [quick_python(), "-c", "import pyspark, os; print(os.path.realpath(pyspark.__file__))"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == os.path.realpath(pyspark.__file__)
    assert quick_python() == quick_python()
