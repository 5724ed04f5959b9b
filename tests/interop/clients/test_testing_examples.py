"""The examples of tests in other languages, run as the guide shows: `ottla testing run -- npm test`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.interop.clients.java_client import SOURCES as JAVA_CLIENT
from tests.interop.clients.java_client import VERSION, compiled
from tests.interop.clients.javascript_client import install
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable, find_java
from tests.peers.unavailable import PeerUnavailable

ROOT: Final = Path(__file__).resolve().parents[3]
EXAMPLES: Final = ROOT / "examples" / "testing"
# The go command compiles franz-go, the first time.
ENDS_WITHIN_S: Final = 600

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + ENDS_WITHIN_S)]

T = TypeVar("T")


def copy_of(language: str, directory: Path) -> Path:
    return shutil.copytree(EXAMPLES / language, directory / language)


def brought(bring: Callable[[], T]) -> T:
    try:
        return bring()
    except (KafkaUnavailable, PeerUnavailable) as reason:
        pytest.skip(str(reason))


def run(project: Path, command: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "ottla", "testing", "run", *options, "--", *command]
    return subprocess.run(
        words, cwd=project, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False, stdin=subprocess.DEVNULL
    )


def node_project(directory: Path) -> Path:
    packages = brought(install) / "node_modules"
    project = copy_of("node", directory)
    (project / "node_modules").symlink_to(packages)
    return project


def test_example_for_node_passes_and_fails_with_its_program(tmp_path: Path) -> None:
    project = node_project(tmp_path)
    done = run(project, ["npm", "test"])
    assert done.returncode == 0, done.stdout + done.stderr

    program = project / "orders.js"
    program.write_text(program.read_text().replace("'paid'", "'lost'"))
    done = run(project, ["npm", "test"])
    assert done.returncode != 0
    assert "'lost'" in done.stdout


def test_example_for_go_passes(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go command")
    project = copy_of("go", tmp_path)
    brought_modules = subprocess.run([go, "mod", "download"], cwd=project, capture_output=True, text=True, check=False)
    if brought_modules.returncode != 0:
        pytest.skip(f"franz-go is not available: {brought_modules.stderr.strip()[-500:]}")
    done = run(project, [go, "test", "-count=1", "-v", "./..."], "--topic", "orders:3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--- PASS: TestPaidOrderIsAnnounced" in done.stdout


def test_example_for_java_passes(tmp_path: Path) -> None:
    jars = brought(lambda: compiled(JAVA_CLIENT, f"java-client-{VERSION}", {"kafka.version": VERSION}))
    project = copy_of("java", tmp_path)
    assert f"<version>{VERSION}</version>" in (project / "pom.xml").read_text()
    compiler = ["javac", "-cp", f"{jars}/*", "-d", "classes", "Orders.java", "OrdersTest.java"]
    subprocess.run(compiler, cwd=project, check=True)
    done = run(project, [find_java(), "-cp", f"classes:{jars}/*", "OrdersTest"], "--topic", "orders:3")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
