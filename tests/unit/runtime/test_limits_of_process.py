from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.runtime import process

resource = pytest.importorskip("resource")

_PROGRAM = """
import resource
from ottla.runtime.process import raise_open_files_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
found = raise_open_files_limit()
assert found == (64, hard), found
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
assert raise_open_files_limit() == (hard, hard)
"""


def test_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    # In a process of its own: the limit would stay for the other tests.
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=30)


@pytest.mark.parametrize(
    ("cpu_max", "count"),
    [("max 100000", 4), ("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("900000 100000", 4)],
)
def test_cores_are_those_of_the_process_and_no_more_than_its_containers_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu_max: str, count: int
) -> None:
    (tmp_path / "cpu.max").write_text(cpu_max + "\n")
    monkeypatch.setattr(process, "_CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert process.usable_cores_count() == count


def test_cores_are_those_of_the_process_where_there_are_no_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
    assert process.usable_cores_count() == 1
