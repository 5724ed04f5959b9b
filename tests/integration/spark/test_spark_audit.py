"""The audit end to end: producers, the broker and a load count, a job on Spark compares."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import ottla
from ottla.audit import ProducerAudit
from ottla.audit.commits import commit_counts
from ottla.audit.comparison import COMPARED_MS, compare
from ottla.audit.snapshot import AuditSnapshot
from ottla.audit.topic import AuditReader, publish, store
from ottla.cli.program import command_of
from ottla.cli.verbs import VERBS
from ottla.client.wire.cluster import Cluster
from ottla.spark.audit import AuditRun, LoadedTable, run_audit
from ottla.spark.audit.table_counts import table_counts
from ottla.spark.lake import load_topic_to_lake
from ottla.spark.lake.target import parse_target
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
SETTINGS = {
    "audit.enable": "true",
    "audit.interval.ms": "200",
    "num.partitions": "2",
    "log.flush.policy": "os",
    "log.retention.ms": "-1",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=SETTINGS) as running:
        yield running


def now_ms() -> int:
    return int(time.time() * 1_000)


def read(broker: RunningBroker) -> AuditSnapshot:
    with Cluster(broker.bootstrap) as cluster:
        return AuditReader(cluster).update()


def numbers(found: AuditRun, topic: str) -> dict[tuple[int, str], tuple[int, int, int]]:
    return {
        (line.window.start_ms, line.tier): (line.records, line.missing_records, line.surplus_records)
        for line in found.lines
        if line.topic == topic
    }


def send(broker: RunningBroker, topic: str, counts: dict[int, int]) -> None:
    """So many records at these times, counted by the producer and by the broker."""
    before = sum(each.records for each in read(broker).counts if (each.key.tier, each.key.topic) == ("broker", topic))
    with ottla.Producer(broker.bootstrap) as producer, ProducerAudit(producer):
        for time_ms, count in counts.items():
            producer.send(topic, [b"v"] * count, timestamp_ms=time_ms)

    def by_broker() -> int:
        return sum(each.records for each in read(broker).counts if (each.key.tier, each.key.topic) == ("broker", topic))

    expected = before + sum(counts.values())
    eventually(by_broker, lambda seen: seen == expected, every_s=0.2)


def test_all_tiers_agree_and_a_late_record_corrects_its_window(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    table, target = tmp_path / "clicks", parse_target(tmp_path / "audit")
    send(broker, "clicks", {5: 100, HOUR_MS + 1: 50})
    load_topic_to_lake(spark, broker.bootstrap, "clicks", table)
    loaded = LoadedTable(parse_target(table))
    first = run_audit(spark, broker.bootstrap, target, tables=[loaded])
    assert numbers(first, "clicks") == {
        (0, "producer"): (100, 0, 0),
        (0, "broker"): (100, 0, 0),
        (0, "lake"): (100, 0, 0),
        (HOUR_MS, "producer"): (50, 0, 0),
        (HOUR_MS, "broker"): (50, 0, 0),
        (HOUR_MS, "lake"): (50, 0, 0),
    }
    # Spark's sums equal those of the audit's snapshot.
    assert list(first.lines) == compare(read(broker).counts, HOUR_MS)

    send(broker, "clicks", {6: 3})
    second = run_audit(spark, broker.bootstrap, target)
    assert numbers(second, "clicks")[0, "lake"] == (100, 3, 0)
    assert {line.window.start_ms for line in second.changed} == {0}
    load_topic_to_lake(spark, broker.bootstrap, "clicks", table)
    # As another run does, which reports all of the table's commits again.
    third = run_audit(spark, broker.bootstrap, target, tables=[LoadedTable(parse_target(table)), loaded])
    assert numbers(third, "clicks")[0, "lake"] == (103, 0, 0)

    rows = DeltaTable(target.url).to_pyarrow_table().to_pylist()
    newest: dict[tuple[object, object], dict[str, object]] = {}
    for row in sorted(rows, key=lambda row: row["compared_at"]):
        newest[row["window_start"].timestamp(), row["tier"]] = row
    assert newest[0.0, "lake"]["records"] == 103
    assert len(rows) == 6 + 3 + 1, "only what has changed"


def test_job_that_was_killed_between_table_and_topic_writes_the_table_once(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = parse_target(tmp_path / "audit")
    with Cluster(broker.bootstrap) as cluster:
        publish(cluster, commit_counts("lake", "1", "clicks", {0: 5, HOUR_MS: 6}, now_ms()), "killed-counts")

    def run() -> AuditRun:
        return run_audit(spark, broker.bootstrap, target, audit_topic="killed-counts", results_topic="killed-results")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ottla.spark.audit.job.store", killed)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert len(DeltaTable(target.url).to_pyarrow_table()) == 2
    assert len(run().changed) == 2, "the topic does not have them yet"
    assert len(DeltaTable(target.url).to_pyarrow_table()) == 2
    assert run().changed == ()


def test_counts_that_do_not_fit_are_left_out_and_foreign_bytes_are_left_out(
    spark: SparkSession, broker: RunningBroker
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        publish(cluster, commit_counts("lake", "1", "clicks", {0: 5}, now_ms(), window_ms=HOUR_MS), "other-counts")
        publish(cluster, commit_counts("lake", "1", "fits", {0: 7}, now_ms()), "other-counts")
        publish(cluster, commit_counts("lake", "1", "expired", {0: 7}, now_ms() - COMPARED_MS - 1), "other-counts")
        store(cluster, [(b"k", b"\xff"), (b"k", b"{}")], "other-counts")
    found = run_audit(spark, broker.bootstrap, audit_topic="other-counts", results_topic="other-results")
    assert numbers(found, "clicks") == {(0, "lake"): (5, 0, 0)}
    assert numbers(found, "expired") == {}
    short = run_audit(
        spark, broker.bootstrap, window_ms=600_000, audit_topic="other-counts", results_topic="other-results"
    )
    assert numbers(short, "fits") == {(0, "lake"): (7, 0, 0)}, "the others are compared"
    assert numbers(short, "clicks") == {}
    assert "tier lake counts clicks by windows of 3600000 ms" in short.left_out["clicks"]


def test_table_that_comes_later_gets_all_lines(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    with Cluster(broker.bootstrap) as cluster:
        publish(cluster, commit_counts("lake", "1", "clicks", {0: 5, HOUR_MS: 6}, now_ms()), "later-counts")

    def run(target: str | None) -> AuditRun:
        place = None if target is None else parse_target(tmp_path / target)
        return run_audit(spark, broker.bootstrap, place, audit_topic="later-counts", results_topic="later-results")

    assert len(run(None).changed) == 2
    for target in ("first", "second", "first"):
        assert run(target).changed == ()
        assert len(DeltaTable(str(tmp_path / target)).to_pyarrow_table()) == 2


def test_duplicates_in_a_table_are_found_in_the_table_itself(spark: SparkSession) -> None:
    rows = [("clicks", 0, offset, offset * 600.0) for offset in [*range(10), 3, 3, 7]]
    table = spark.createDataFrame(rows, "topic string, partition int, offset long, seconds double")
    found = table_counts(table.selectExpr("topic", "partition", "offset", "CAST(seconds AS timestamp) AS timestamp"))
    assert sorted(map(tuple, found.collect())) == [("clicks", 0, 6, 2), ("clicks", HOUR_MS, 4, 1)]


def test_command_compares_and_reports(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "compared", {5: 10})
    load_topic_to_lake(spark, broker.bootstrap, "compared", tmp_path / "compared")
    config = tmp_path / "job.toml"
    run = f'[audit.run]\ntarget = "{tmp_path / "a"}"\ntable = "{tmp_path / "compared"}"\n'
    config.write_text(f'[audit]\nbootstrap-server = "{broker.bootstrap}"\n{run}')
    outcome = CliRunner().invoke(command_of("audit", VERBS["audit"]), ["run", "--config", str(config), "--json"])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout.splitlines()[-1])["lines"] > 0
    rows = DeltaTable(str(tmp_path / "a")).to_pyarrow_table().to_pylist()
    assert ("lake", 10) in {(row["tier"], row["records"]) for row in rows if row["topic"] == "compared"}
