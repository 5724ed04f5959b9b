"""The tour of the README, run verbatim against a broker; test_guide_of_spark.py has its snippet of PySpark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.integration.page_snippets import PYTHON, ROOT, SHELL, Site, read_snippets, run_snippets, the_snippet

SNIPPETS: Final = read_snippets(ROOT / "README.md")


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


def _run(language: str, containing: str, broker: RunningBroker, directory: Path) -> str:
    """The output of a snippet.  Warnings of other clients are allowed."""
    snippet = the_snippet(SNIPPETS, language, containing)
    (printed,) = run_snippets([snippet], Site(broker.bootstrap), directory, warnings_are_errors=False)
    return printed


def test_commands_of_the_tour_print_its_output(broker: RunningBroker, tmp_path: Path) -> None:
    snippet = the_snippet(SNIPPETS, SHELL, "ottla topic describe")
    snippet = snippet._replace(code=snippet.code.replace(" page-views", " tour"))
    (printed,) = run_snippets([snippet], Site(broker.bootstrap), tmp_path)
    assert '"key": "ada"' in printed or '"key":"ada"' in printed


def test_client_of_the_tour_reads_its_messages(broker: RunningBroker, tmp_path: Path) -> None:
    snippet = the_snippet(SNIPPETS, PYTHON, "ottla.ConsumerConnector")
    (printed,) = run_snippets([snippet], Site(broker.bootstrap), tmp_path)
    assert "b'ada' b'/jobs'" in printed
    assert "b'ada' b'/in/bob'" in printed


@pytest.mark.interop
def test_snippet_of_confluent_kafka_prints_the_record(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    assert "/jobs" in _run(PYTHON, "from confluent_kafka", broker, tmp_path)


@pytest.mark.interop
def test_group_of_the_snippet_is_described_and_moved(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    _run(PYTHON, "from confluent_kafka", broker, tmp_path)
    printed = _run(SHELL, "ottla group describe", broker, tmp_path)
    assert "readme" in printed
    assert "page-views" in printed


@pytest.mark.interop
def test_snippet_of_kafka_python_prints_the_record(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("kafka")
    assert "/jobs" in _run(PYTHON, "from kafka import", broker, tmp_path)
