"""One run of a suite: a separate environment, a copy of the tests, pytest, and its report."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.expected_failures import Result
from tests.interop.suites.suite import HERE, Suite
from tests.peers.cache import keep_in_cache

RUN_TIMEOUT_S: Final = 1_800


def run_suite(suite: Suite, source: Path, bootstrap: str, arguments: Sequence[str]) -> dict[str, Result]:
    """Each test's result by its class and name.  Shows pytest's own output.  Raises RuntimeError without a report."""
    python = _environment(suite, suite.version_of(source))
    with tempfile.TemporaryDirectory(prefix=f"{suite.name}-") as scratch:
        tree = Path(scratch) / "tree"
        _copy(suite, source, tree)
        report = Path(scratch) / "report.xml"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= suite.environment(bootstrap)
        options = ("-q", "-ra", "-p", "no:cacheprovider", f"--junitxml={report}")
        command = [str(python), "-m", "pytest", *options, *suite.arguments, *(arguments or suite.tests)]
        subprocess.run(command, cwd=tree, env=environment, timeout=RUN_TIMEOUT_S, check=False)
        if not report.exists():
            raise RuntimeError("pytest wrote no report: its own message is above")
        return read_report(report)


def read_report(report: Path) -> dict[str, Result]:
    """Of a JUnit file.  A test that passed and whose teardown failed is there twice: it failed."""
    results: dict[str, Result] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            results[name] = Result.FAILED
        elif case.find("skipped") is not None:
            results.setdefault(name, Result.SKIPPED)
        else:
            results.setdefault(name, Result.PASSED)
    return results


def _copy(suite: Suite, source: Path, tree: Path) -> None:
    tree.mkdir()
    for part in suite.copied:
        if (source / part).is_dir():
            shutil.copytree(source / part, tree / part)
        else:
            shutil.copy(source / part, tree / part)
    if suite.conftest is not None:
        folder, ours = suite.conftest
        (tree / folder / "conftest.py").rename(tree / folder / "original_conftest.py")
        shutil.copy(HERE / "adapters" / ours, tree / folder / "conftest.py")


def _environment(suite: Suite, version: str) -> Path:
    """The Python of an environment with the suite's requirements, without Ottla's; created once."""
    requirements = [requirement.format(version=version) for requirement in suite.requirements]
    digest = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:8]

    def bring(home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *requirements], check=True)

    return keep_in_cache(f"suite-{suite.name}-{digest}", bring) / "bin" / "python"
