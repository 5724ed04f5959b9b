"""The peer itself: it starts, its tools work, and the benchmark's raw client uses its protocol correctly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.peers import kafka_jars
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.java_tool import GET_OFFSETS, TOPIC_COMMAND, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop


def run(main_class: str, kafka: ApacheKafka, *arguments: str) -> str:
    done = run_tool(main_class, "--bootstrap-server", kafka.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_topic_command_creates_a_topic_that_is_described_and_on_disk(kafka: ApacheKafka) -> None:
    run(TOPIC_COMMAND, kafka, "--create", "--topic", "clicks", "--partitions", "3")
    assert "PartitionCount: 3" in run(TOPIC_COMMAND, kafka, "--describe", "--topic", "clicks")
    assert {path.name for path in kafka.data_dir.glob("clicks-*")} == {"clicks-0", "clicks-1", "clicks-2"}
    assert run(GET_OFFSETS, kafka, "--topic", "clicks").split() == ["clicks:0:0", "clicks:1:0", "clicks:2:0"]


def test_usage_of_the_process_is_that_of_a_jvm_which_has_started(kafka: ApacheKafka) -> None:
    # With archived classes half of what it is without.
    assert kafka.cpu_seconds() > 0.5
    assert 100_000_000 < kafka.rss_bytes() <= kafka.rss_peak_bytes()
    assert kafka.startup_s > 0.5


def test_tool_reports_its_own_failure(kafka: ApacheKafka) -> None:
    done = run_tool(TOPIC_COMMAND, "--bootstrap-server", kafka.bootstrap, "--describe", "--topic", "no-such-topic")
    assert done.returncode != 0
    assert "no-such-topic" in done.stdout + done.stderr


def test_install_gives_the_reason_when_maven_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to(kafka_jars.find_java())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OTTLA_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(KafkaUnavailable, match="no mvn command"):
        kafka_jars.install.__wrapped__()


def test_install_gives_the_reason_when_java_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old_java = tmp_path / "java"
    old_java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old_java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(KafkaUnavailable, match="is Java 11"):
        kafka_jars.find_java.__wrapped__()


def test_broker_is_gone_after_its_context(kafka: ApacheKafka) -> None:
    with ApacheKafka() as second:
        process = second._process
        home = second.data_dir.parent
    assert isinstance(process, subprocess.Popen)
    assert process.poll() is not None
    assert not home.exists()
