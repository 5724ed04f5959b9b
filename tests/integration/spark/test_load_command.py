"""`ottla load` as its users call it: a process that starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ottla.testing import ControlledBroker, consume_all, produce

pytestmark = [pytest.mark.spark]


def ottla(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_load_takes_its_settings_from_a_file_and_runs_again_without_loading_twice(tmp_path: Path) -> None:
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
        again = ottla("load", "--config", "job.toml", "--target", "lake", folder=tmp_path)
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["rows"] == 0
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


def test_a_tables_small_files_are_compacted_and_others_removed(tmp_path: Path) -> None:
    with ControlledBroker() as broker, broker.namespace() as topics:
        clicks = topics.topic("clicks")
        given = ["load", str(clicks), "-b", broker.bootstrap, "--target", "lake", "--master", "local[2]", "--json"]
        given += ["--table", "lake.clicks", "--partition-by", "topic", "--rows-per-commit", "10"]
        produce(clicks, [b"%d" % number for number in range(30)])
        loaded = ottla(*given, folder=tmp_path)
        assert loaded.returncode == 0, loaded.stderr
        assert json.loads(loaded.stdout)["commits"] == 3
        again = ottla(
            "load",
            "backfill",
            *given[1:-2],
            *("--partition-by", "event_date", "--from", "2020-01-01", "--to", "2020-01-02"),
            folder=tmp_path,
        )
        assert again.returncode == 1
        assert "is partitioned by topic" in again.stderr
    place = ["--target", "lake", "--table", "lake.clicks", "--json"]
    compacted = ottla("load", "compact", *place, folder=tmp_path)
    assert compacted.returncode == 0, compacted.stderr
    assert json.loads(compacted.stdout) == {"files_before": 3, "files_after": 1, "rows": 30, "table_version": 4}
    removed = ottla("load", "vacuum", *place, folder=tmp_path)
    assert removed.returncode == 0, removed.stderr
    assert json.loads(removed.stdout) == {"files": [], "dry_run": False}
