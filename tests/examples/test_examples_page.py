"""The README of the examples; those of its commands that start Spark are run in test_examples_page_of_spark.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing import ControlledBroker
from tests.examples.page import program_of, run_commands_of, snippets_of_the_page
from tests.integration.page_snippets import ROOT


def test_every_example_has_its_part_of_the_page() -> None:
    programs = {path.parent.name for path in (ROOT / "examples").glob("*/__main__.py")}
    assert programs
    assert programs == {program_of(each) for each in snippets_of_the_page()}


def test_commands_of_the_search_index_print_the_output_on_the_page(
    broker: ControlledBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_commands_of("search_index", broker.bootstrap, tmp_path, monkeypatch)
