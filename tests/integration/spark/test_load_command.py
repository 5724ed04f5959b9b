"""`ottla load` as its users call it: a process that starts Spark, or the verb in the tests' own session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ottla.cli.pipeline.load import command
from ottla.testing import ControlledBroker, consume_all, produce

pytestmark = [pytest.mark.spark]


def ottla(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def load(*arguments: str) -> Result:
    """The verb, in this process and its session."""
    return CliRunner().invoke(command, arguments)


def facts_of(outcome: Result) -> dict[str, object]:
    assert outcome.exit_code == 0, outcome.output
    found: dict[str, object] = json.loads(outcome.stdout.splitlines()[-1])
    return found


def test_a_load_takes_its_settings_from_a_file_and_runs_again_without_loading_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ControlledBroker() as broker, broker.namespace() as topics:
        clicks = topics.topic("clicks", partitions=2)
        produce(clicks, [b"%d" % number for number in range(10)])
        settings = f"""
            [load]
            topics = ["{clicks}"]
            bootstrap-server = "{broker.bootstrap}"
            master = "local[2]"
            json = true
            tells-audit = true
        """
        (tmp_path / "job.toml").write_text(settings)
        first = ottla("load", "--config", "job.toml", "--target", "lake", folder=tmp_path)
        assert first.returncode == 0, first.stderr
        assert json.loads(first.stdout)["rows"] == 10
        again = load("--config", str(tmp_path / "job.toml"), "--target", str(tmp_path / "lake"))
        assert facts_of(again)["rows"] == 0
        values = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().column("value").to_pylist()
        assert sorted(values) == [b"%d" % number for number in range(10)]
        told = {record.value for record in consume_all("ottla-audit", bootstrap=broker.bootstrap)}
        counts = [json.loads(each or b"") for each in told]
        assert sum(count["records"] for count in counts if count["tier"] == "lake") == 10


def test_a_wrong_setting_is_refused_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[load]\ntopics = 5\n")
    refused = ottla("load", "--config", "job.toml", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: job.toml: [load] topics is 5")


def test_a_tables_small_files_are_compacted_and_others_removed(spark: SparkSession, tmp_path: Path) -> None:
    place = ("--target", str(tmp_path / "lake"), "--table", "lake.clicks", "--json")
    with ControlledBroker() as broker, broker.namespace() as topics:
        clicks = topics.topic("clicks")
        given = (str(clicks), "-b", broker.bootstrap, *place)
        produce(clicks, [b"%d" % number for number in range(30)])
        loaded = load(*given, "--partition-by", "topic", "--rows-per-commit", "10")
        assert facts_of(loaded)["commits"] == 3
        days = ("--partition-by", "event_date", "--from", "2020-01-01", "--to", "2020-01-02")
        again = load("backfill", *given, *days)
        assert again.exit_code == 1
        assert "is partitioned by topic" in str(again.exception)
    compacted = load("compact", *place)
    assert facts_of(compacted) == {"files_before": 3, "files_after": 1, "rows": 30, "table_version": 4}
    assert facts_of(load("vacuum", *place)) == {"files": [], "dry_run": False}
