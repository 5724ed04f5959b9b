"""The flags of `ottla load --upsert`, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import ottla.spark
from ottla.cli.pipeline.load import command
from ottla.spark import lake
from ottla.spark.lake import LakeError, LakeLoad, debezium_json


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Of each loader that is made."""
    found: list[dict[str, Any]] = []

    class Loaded:
        def __init__(self, *_arguments: object, **settings: object) -> None:
            found.append(settings)

        def load(self, *_arguments: object) -> LakeLoad:
            return LakeLoad(0, 0, {}, None)

    monkeypatch.setattr(lake, "Loader", Loaded)
    monkeypatch.setattr(ottla.spark, "session", lambda *_arguments, **_settings: None)
    return found


def run(*flags: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(command, ["people", "-b", "localhost:1", "--target", "lake", *flags])
    return outcome.exit_code, outcome.output


def test_keys_order_and_events_of_debezium_are_those_of_the_loader(arguments: list[dict[str, Any]]) -> None:
    columns = "id bigint, full_name string,share DOUBLE"
    flags = ("--upsert", "--key", "id", "--sequence-by", "source_lsn", "--buckets", "3", "--debezium", columns)
    assert run(*flags)[0] == 0
    (given,) = arguments
    assert {name: given[name] for name in ("mode", "keys", "sequence_by", "buckets", "partition_by")} == {
        "mode": "upsert",
        "keys": ("id",),
        "sequence_by": "source_lsn",
        "buckets": 3,
        "partition_by": None,
    }
    schema = pa.schema([("id", pa.int64()), ("full_name", pa.string()), ("share", pa.float64())])
    assert given["decode"] == debezium_json(schema, ["id"], {"lsn": pa.int64()})


def test_a_history_is_a_mode_of_the_loader(arguments: list[dict[str, Any]]) -> None:
    assert run("--upsert", "--history", "--sequence-by", "timestamp")[0] == 0
    assert {name: arguments[0][name] for name in ("mode", "sequence_by")} == {
        "mode": "history",
        "sequence_by": "timestamp",
    }
    assert "keys" not in arguments[0]


def test_a_load_without_the_flag_appends_by_the_records_of_each_hour(arguments: list[dict[str, Any]]) -> None:
    assert run()[0] == 0
    (given,) = arguments
    assert "mode" not in given
    assert given["partition_by"] is None


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--sequence-by", "updated"), "no column 'updated', which orders the changes"),
        (("--key", "id"), "no column 'id', which is of the key"),
        (("--key", "id", "--sequence-by", "lsn", "--debezium", "id bigint"), "no column 'lsn'"),
        (("--key", "id", "--sequence-by", "share", "--debezium", "id bigint, share double"), "'share' is double"),
        (("--key", "id", "--sequence-by", "deleted", "--debezium", "id bigint"), "'deleted' is bool"),
    ],
)
def test_a_key_or_an_order_that_no_row_can_have_is_refused_before_spark_starts(
    arguments: list[dict[str, Any]], flags: tuple[str, ...], problem: str
) -> None:
    outcome = CliRunner().invoke(command, ["people", "-b", "localhost:1", "--target", "lake", "--upsert", *flags])
    assert isinstance(outcome.exception, LakeError)
    assert problem in str(outcome.exception)
    assert arguments == []


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--key", "id"), "are for --upsert"),
        (("--sequence-by", "at"), "are for --upsert"),
        (("--history",), "are for --upsert"),
        (("--upsert", "--history"), "--history needs --sequence-by"),
        (("--upsert", "--debezium", "id bigint"), "give --key"),
        (("--upsert", "--key", "id", "--debezium", "id blob"), "'id blob' is not a name and one of bigint"),
        (("--upsert", "--key", "id", "--debezium", "id"), "'id' is not a name and one of bigint"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_spark_starts(
    arguments: list[dict[str, Any]], flags: tuple[str, ...], problem: str
) -> None:
    status, said = run(*flags)
    assert (status, arguments) == (2, [])
    assert problem in said
