"""The table of clients and features in the documentation says what tests show."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.interop.client_table import FEATURES, TABLE, rendered

ROOT: Final = Path(__file__).resolve().parents[2]
INTEROP: Final = ROOT / "tests" / "interop"
SHOWN_BY: Final = sorted({test for cells in TABLE.values() for test in cells.values()})


def test_table_in_the_documentation_is_made_from_the_tests() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert rendered() in page, "stale: python -m tests.interop.client_table prints what belongs there"


def test_cells_are_of_known_features() -> None:
    assert {feature for cells in TABLE.values() for feature in cells} <= set(FEATURES)


def test_every_cell_is_backed_by_a_test_that_exists() -> None:
    """By pytest's own collection, so that parameters count too."""
    files = sorted({str(INTEROP / test.partition("::")[0]) for test in SHOWN_BY})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400)
    collected = {line.removeprefix("tests/interop/") for line in done.stdout.splitlines() if "::" in line}
    assert collected, done.stdout + done.stderr
    assert [test for test in SHOWN_BY if test not in collected] == []


def test_no_cell_is_backed_by_a_test_that_is_expected_to_fail() -> None:
    marked: list[str] = []
    for path in sorted({test.partition("::")[0] for test in SHOWN_BY}):
        for node in ast.walk(ast.parse((INTEROP / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                marked += [
                    f"{path}::{node.name}"
                    for mark in node.decorator_list
                    if "mark.xfail" in ast.unparse(mark) or "mark.skip" in ast.unparse(mark)
                ]
    assert [test for test in SHOWN_BY if test.partition("[")[0] in marked] == []
