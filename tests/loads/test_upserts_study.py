"""The study of upserts with few changes: kills at each point, and the table that plain Python computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.client.contenders.names import OTTLA
from bench.studies import run_study
from bench.upserts.study import FORMATS, KILLS, STUDY

# Seven drivers start, one after the other.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2_400)]


@pytest.mark.parametrize("table", FORMATS)
def test_changes_through_kills_at_each_point_leave_the_table_of_plain_python(tmp_path: Path, table: str) -> None:
    arguments = ["--quick", "--part", KILLS, "--peer", f"{OTTLA}-{table}", "--results-dir", str(tmp_path)]
    assert run_study(STUDY, [*arguments, "--work-dir", str(tmp_path / "work")]) == 0
