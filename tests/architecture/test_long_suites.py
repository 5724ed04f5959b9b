"""The table of long tests: its patterns match tests, what stays is short, and tests/README.md shows it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.architecture.source_tree import ROOT
from tests.long_suites import COLLECTED, LONG_SUITES, LongSuite, file_of, is_long, markdown_rows, unmatched


def _collected(files: set[str], config: pytest.Config) -> Sequence[str]:
    """The node ids of these files.  Where this run has them all, another process need not collect them again."""
    known = config.stash[COLLECTED]
    if files <= set(map(file_of, known)):
        return [node_id for node_id in known if file_of(node_id) in files]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_every_long_test_and_its_shorter_relative_exist(request: pytest.FixtureRequest) -> None:
    files = {file_of(pattern) for suite in LONG_SUITES for pattern in (*suite.tests, *suite.stays)}
    node_ids = _collected(files, request.config)
    assert unmatched(node_ids) == []
    assert {file_of(node_id) for node_id in node_ids} == files


def test_pattern_without_a_test_and_a_relative_that_is_long_are_found() -> None:
    (long, *_), stays, _ = LONG_SUITES[0]
    wrong = LongSuite(("tests/no_such_file.py",), (long,), "planted")
    node_ids = [f"{long}[1]", *stays]
    assert unmatched(node_ids, [wrong]) == ["tests/no_such_file.py", long]


def test_pattern_is_the_start_of_a_node_id_with_any_text_at_a_star() -> None:
    file = "tests/interop/test_groups.py"
    assert is_long(f"{file}::test_remaining_members_take_the_partitions[cooperative-sticky]")
    assert not is_long(f"{file}::test_remaining_members_take_the_partitions[range]")
    assert is_long("tests/cluster/test_short_chaos.py::test_it")


def test_page_of_the_tests_shows_the_table() -> None:
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith("| `")] == markdown_rows()
