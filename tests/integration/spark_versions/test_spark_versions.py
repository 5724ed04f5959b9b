"""The source, the sink and the pipeline pass their tests under every Spark that pyproject.toml allows."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.peers.spark_versions import EARLIER, archive_classes, environment_of, python_with
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT: Final = Path(__file__).resolve().parents[3]
SPARK: Final = "tests/integration/spark"
TESTS: Final = (
    f"{SPARK}/test_spark_read.py",
    f"{SPARK}/test_spark_options.py",
    f"{SPARK}/test_spark_tasks.py",
    f"{SPARK}/test_spark_stream.py",
    f"{SPARK}/test_spark_sink.py",
    f"{SPARK}/test_spark_exactly_once.py",
    f"{SPARK}/test_spark_dead_letters.py",
    f"{SPARK}/test_spark_late_rows.py",
    f"{SPARK}/test_spark_streams.py",
    f"{SPARK}/test_spark_schemas.py",
    f"{SPARK}/test_spark_lake.py",
    f"{SPARK}/test_spark_upserts.py",
    f"{SPARK}/test_spark_audit.py::test_all_tiers_agree_and_a_late_record_corrects_its_window",
    f"{SPARK}/test_spark_mirror.py::test_each_run_copies_new_records_and_moves_the_groups",
    f"{SPARK}/test_spark_fixture.py",
    f"{SPARK}/earlier_spark.py",
    "tests/integration/test_pipelines.py",
)
# What a version has no test to pass of: the file needs what came later, or what it has not yet.
SKIPPED: Final[Mapping[str, tuple[str, ...]]] = {
    "4.0": (
        f"{SPARK}/test_spark_late_rows.py",
        f"{SPARK}/test_spark_schemas.py",
        "tests/integration/test_pipelines.py",
    ),
    "4.1": (f"{SPARK}/test_spark_late_rows.py",),
    "4.2": (f"{SPARK}/earlier_spark.py",),
}
# PySpark before 4.3 leaves sockets to the garbage collector.
SOCKETS_LEFT: Final = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
ENDS_WITHIN_S: Final = 2_400
# The last line of pytest: "80 passed, 3 skipped in 120.00s (0:02:00)".
_SUMMARY: Final = re.compile(r"^=*\s*(\d+ (?:passed|failed|error).* in [\d.]+s).*$", re.MULTILINE)


@pytest.mark.timeout(2 * ENDS_WITHIN_S)
@pytest.mark.parametrize("version", EARLIER)
def test_tests_of_spark_pass_under_an_earlier_version(
    version: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    try:
        python = python_with(version)
        archive_classes(python)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    report = tmp_path / "report.xml"
    selected = ["-k", "not apache-kafka", f"--junit-xml={report}", *SOCKETS_LEFT, *TESTS]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *selected],
        cwd=ROOT,
        env=environment_of(python),
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    found = _SUMMARY.findall(done.stdout)
    record_property("spark", f"{version}: {found[-1] if found else 'no test ran'}")
    assert done.returncode == 0, done.stdout[-20_000:]
    passed = modules_with_a_pass(report)
    skipped = {test for test in TESTS if module_of(test) not in passed}
    assert skipped == set(SKIPPED.get(version, ())), f"all tests of these were skipped:\n{done.stdout[-20_000:]}"


def module_of(test: str) -> str:
    """The module of a node id, as pytest's report names it."""
    return test.partition("::")[0].removesuffix(".py").replace("/", ".")


def modules_with_a_pass(report: Path) -> set[str]:
    """The modules of which at least one test ran and passed, in a report without failures."""
    cases = ElementTree.parse(report).iter("testcase")
    return {case.get("classname", "") for case in cases if case.find("skipped") is None}
