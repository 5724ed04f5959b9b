"""What a Delta table raises when its place does not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ottla.spark.errors import LakeError
from ottla.spark.lake.delta_table import DeltaLake
from ottla.spark.lake.target import parse_target


@pytest.mark.parametrize("error", [DeltaError("the store does not answer"), OSError("the store does not answer")])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("history", lambda table: table.newest_facts(3)),
        ("get_add_actions", lambda table: table.files()),
    ],
)
def test_a_store_that_does_not_answer_is_a_failure_of_one_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, read: Callable[[DeltaLake], object], error: Exception
) -> None:
    table = DeltaLake(parse_target(tmp_path / "lake"), pa.schema([("key", pa.binary())]))
    read(table)

    def failing(*_arguments: Any, **_named: Any) -> None:
        raise error

    monkeypatch.setattr(DeltaTable, name, failing)
    with pytest.raises(LakeError, match="the table could not be read or changed: the store does not answer"):
        read(table)
