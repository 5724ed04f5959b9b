"""The commands of the README that start Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.testing import ControlledBroker
from tests.examples.page import run_commands_of

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("program", ["abuse_alert", "related_items"])
def test_commands_of_a_program_print_the_output_on_the_page(
    program: str, broker: ControlledBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_commands_of(program, broker.bootstrap, tmp_path, monkeypatch)
