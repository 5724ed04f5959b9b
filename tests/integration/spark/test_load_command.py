"""`ottla load` as its users call it: a process that starts Spark, or the verb in the tests' own session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ottla.cli.pipeline.load_verb import command
from ottla.model.errors import details_of
from ottla.spark.errors import RecordsRefused
from ottla.testing import ControlledBroker, consume_all, produce
from tests.eventually import WITHIN_S, eventually
from tests.integration.test_testing_command import free_port

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


DECODE = """
import json

import pyarrow as pa


def pages(records):
    return pa.table({"page": [json.loads(value)["page"] for value in records.column("value").to_pylist()]})
"""


def test_record_that_a_function_refuses_ends_the_load_or_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "views.py").write_text(DECODE)
    with ControlledBroker() as broker, broker.namespace() as topics:
        views = topics.topic("views")
        produce(views, [b'{"page": "/a"}', b"<html>", b'{"page": "/b"}'])
        place = ("--target", str(tmp_path / "lake"), "--decode", f"{tmp_path}/views.py:pages")
        given = (str(views), "-b", broker.bootstrap, *place)
        refused = load(*given)
        assert isinstance(refused.exception, RecordsRefused)
        assert str(refused.exception).startswith(f"decode failed for the record at offset 1 of {views} partition 0: ")
        [trace] = details_of(refused.exception)
        assert "views.py" in trace
        assert "json.decoder.JSONDecodeError" in trace
        loaded = load(*given, "--dead-letters", "--json")
        assert facts_of(loaded)["refused"] == {"decode": 1}
        [letter] = consume_all(f"{views}.dead-letter", bootstrap=broker.bootstrap)
        assert (letter.value, dict(letter.headers)["__connect.errors.stage"]) == (b"<html>", b"LOAD")
    table = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()
    assert sorted(table.column("page").to_pylist()) == ["/a", "/b"]


def test_a_service_loads_the_tables_of_a_file_beside_one_whose_broker_is_away_and_one_that_refuses_its_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ControlledBroker() as broker, broker.namespace() as topics:
        clicks, orders = topics.topic("clicks"), topics.topic("orders")
        produce(clicks, [b"%d" % number for number in range(10)])
        (tmp_path / "loads.toml").write_text(f"""
            [load]
            bootstrap-server = "{broker.bootstrap}"
            every = "1s"
            [load.tables.clicks]
            topics = ["{clicks}"]
            target = "{tmp_path}/clicks"
            [load.tables.orders]
            topics = ["{orders}"]
            target = "{tmp_path}/orders"
            [load.tables.away]
            topics = ["any"]
            target = "{tmp_path}/away"
            bootstrap-server = "127.0.0.1:1"
            option = {{ "kafka.default.api.timeout.ms" = "1000" }}
            [load.tables.broken]
            topics = ["{clicks}"]
            target = "{tmp_path}/broken"
            decode = "{tmp_path}/views.py:pages"
        """)
        (tmp_path / "views.py").write_text(DECODE)
        port = free_port()

        def metrics() -> dict[str, float]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                    lines = response.read().decode().splitlines()
            except urllib.error.URLError:  # it has not started
                return {}
            return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

        def watch() -> None:
            try:
                eventually(metrics, lambda seen: seen.get('ottla_load_rows_total{table="clicks"}') == 10)
                produce(orders, [b"a", b"b"])
                # Each table is loaded at its own time: what each comes to is awaited, in any order.
                eventually(metrics, lambda seen: seen.get('ottla_load_rows_total{table="orders"}') == 2)
                eventually(metrics, lambda seen: seen['ottla_load_failures_total{table="away"}'] >= 1)
                seen = eventually(metrics, lambda seen: seen['ottla_load_stopped{table="broken"}'] == 1)
                assert seen['ottla_load_lag_seconds{table="clicks"}'] < WITHIN_S
                assert seen['ottla_load_refused_records_total{table="broken",reason="decode"}'] == 1
                with pytest.raises(urllib.error.HTTPError, match="503") as unhealthy:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")
                assert unhealthy.value.read().startswith(b"broken: stopped: RecordsRefused (decode), at offset 0 of ")
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        with ThreadPoolExecutor(1) as threads:
            watching = threads.submit(watch)
            outcome = load("serve", "--config", str(tmp_path / "loads.toml"), "--http", f"127.0.0.1:{port}")
            watching.result()
    assert outcome.exit_code == 0, outcome.output
    clicks_line, orders_line, away_line, broken_line = outcome.stdout.splitlines()
    assert clicks_line == "clicks: 10 rows in 1 commit"
    assert orders_line.startswith("orders: 2 rows in ")
    assert away_line == "away: 0 rows in 0 commits"
    assert broken_line == "broken: 0 rows in 0 commits"
    assert "away: not loaded, tried again in 1 s" in outcome.stderr
    assert "broken: stopped: decode failed for the record at offset 0" in outcome.stderr
    assert "  TypeError: 'int' object is not subscriptable" in outcome.stderr
    assert DeltaTable(str(tmp_path / "clicks")).to_pyarrow_table().num_rows == 10


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
