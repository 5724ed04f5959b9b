"""The tour of the README, run as it stands against a broker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.broker import RunningBroker

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS: Final = "127.0.0.1:9092"


def _block(language: str, containing: str) -> str:
    """The one code block of this language that has this in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "ottla",
                "topic",
                "create",
                "page-views",
                "--partitions",
                "3",
                "-b",
                running.bootstrap,
            ],
            check=True,
            timeout=240,
        )
        yield running


def _run(code: str, broker: RunningBroker) -> str:
    code = code.replace(ADDRESS, broker.bootstrap)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_own_tools_do_what_the_tour_shows(broker: RunningBroker) -> None:
    shell = "\n".join(
        f"{line} --bootstrap-server {broker.bootstrap}"
        for line in _block("sh", "ottla topic describe")
        .replace("ottla topic create page-views", "ottla topic create tour")
        .splitlines()
    )
    shell = re.sub(r"\bottla (?=topic|produce|consume)", f"{sys.executable} -m ottla ", shell)
    shell = shell.replace(" page-views", " tour")
    found = subprocess.run(["bash", "-ec", shell], capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr
    assert '"key": "ada"' in found.stdout or '"key":"ada"' in found.stdout


@pytest.mark.interop
def test_snippet_of_confluent_kafka_prints_the_record(broker: RunningBroker) -> None:
    pytest.importorskip("confluent_kafka")
    assert "/jobs" in _run(_block("python", "from confluent_kafka"), broker)


@pytest.mark.interop
def test_group_of_the_snippet_is_described_and_moved(broker: RunningBroker) -> None:
    pytest.importorskip("confluent_kafka")
    _run(_block("python", "from confluent_kafka"), broker)
    shell = "\n".join(
        f"{line} --bootstrap-server {broker.bootstrap}" for line in _block("sh", "ottla group describe").splitlines()
    ).replace("ottla group", f"{sys.executable} -m ottla group")
    found = subprocess.run(["bash", "-ec", shell], capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr
    assert "readme" in found.stdout
    assert "page-views" in found.stdout


@pytest.mark.interop
def test_snippet_of_kafka_python_prints_the_record(broker: RunningBroker) -> None:
    pytest.importorskip("kafka")
    assert "/jobs" in _run(_block("python", "from kafka import"), broker)


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.slow
def test_snippet_of_pyspark_shows_the_records(broker: RunningBroker) -> None:
    pytest.importorskip("pyspark")
    _run(_block("python", "from kafka import"), broker)
    assert "/jobs" in _run(_block("python", "import ottla.spark"), broker)
