"""Which keys `ottla lake erase` takes, before a table or a cluster is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.pipeline.lake import erase


@pytest.mark.parametrize("columns", [("country=at",), ("key=7", "country=at"), ("country=at", "key=7")])
def test_a_column_that_letters_do_not_have_is_refused_with_dead_letters(
    tmp_path: Path, columns: tuple[str, ...]
) -> None:
    """The table loses the rows with both values; the topic would lose all letters of the key."""
    flags = [part for column in columns for part in ("--key", column)]
    refused = CliRunner().invoke(erase, ["--target", str(tmp_path / "none"), *flags, "--dead-letters-of", "visits"])
    assert refused.exit_code == 2
    assert "needs the key of the records alone: give --key key=VALUE" in refused.output
