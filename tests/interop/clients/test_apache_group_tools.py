"""Apache Kafka 4.3's tools about groups, settings and disks, and its consumers as members of groups, against Ottla."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.interop import confluent_client
from tests.interop.expected_records import CODECS, Sent
from tests.interop.test_apache_tools import run
from tests.peers.java_tool import (
    CONFIGS_COMMAND,
    CONSOLE_CONSUMER,
    CONSUMER_GROUPS_COMMAND,
    CONSUMER_PERFORMANCE,
    LOG_DIRS_COMMAND,
)

pytestmark = pytest.mark.interop

RECORDS: Final = 40
PROTOCOLS: Final = ("classic", "consumer")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def filled(bootstrap: str, topic: str, now_ms: int) -> str:
    sent = [Sent(None, b"value %d" % number, (), now_ms + number) for number in range(RECORDS)]
    confluent_client.produce(bootstrap, topic, sent, "none")
    return topic


def read_in_group(bootstrap: str, topic: str, group: str, protocol: str, *more: str, count: int = RECORDS) -> list[str]:
    to_server = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning")
    options = ("--command-property", f"group.protocol={protocol}", "--max-messages", str(count))
    return run(CONSOLE_CONSUMER, *to_server, *options, "--timeout-ms", "120000", *more).splitlines()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_console_consumer_reads_as_a_member_and_resumes(
    bootstrap: str, filled: str, now_ms: int, protocol: str
) -> None:
    group = f"console-{protocol}-{filled}"
    values = [f"value {number}" for number in range(RECORDS)]
    assert read_in_group(bootstrap, filled, group, protocol) == values
    late = [Sent(b"late", b"late", (("name", b"header"),), now_ms)]
    confluent_client.produce(bootstrap, filled, late, "zstd")
    printed = ("--formatter-property", "print.headers=true", "--formatter-property", "print.key=true")
    lines = read_in_group(bootstrap, filled, group, protocol, *printed, count=1)
    assert lines == ["name:header\tlate\tlate"]


def consumer_groups(bootstrap: str, *arguments: str) -> str:
    return run(CONSUMER_GROUPS_COMMAND, "--bootstrap-server", bootstrap, *arguments)


def columns(output: str, group: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith(f"{group} ")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_groups_lists_describes_resets_and_deletes(bootstrap: str, filled: str, protocol: str) -> None:
    group = f"told-{protocol}-{filled}"
    read_in_group(bootstrap, filled, group, protocol, count=30)
    assert group in consumer_groups(bootstrap, "--list").splitlines()
    named = ("--group", group)
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ...
    (line,) = columns(consumer_groups(bootstrap, "--describe", *named), group)
    assert line[1:6] == [filled, "0", "30", str(RECORDS), str(RECORDS - 30)]
    reset = ("--reset-offsets", *named, "--topic", filled)
    assert columns(consumer_groups(bootstrap, *reset, "--to-earliest", "--dry-run"), group)[0][1:4] == [
        filled,
        "0",
        "0",
    ]
    consumer_groups(bootstrap, *reset, "--shift-by", "3", "--execute")
    (line,) = columns(consumer_groups(bootstrap, "--describe", *named), group)
    assert line[3] == "33"
    consumer_groups(bootstrap, "--delete", *named)
    assert group not in consumer_groups(bootstrap, "--list").splitlines()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_perf_test_measures_all_records(bootstrap: str, filled: str, protocol: str, tmp_path: Path) -> None:
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.protocol={protocol}\nauto.offset.reset=earliest\n")
    to_server = ("--bootstrap-server", bootstrap, "--topic", filled, "--group", f"perf-{protocol}-{filled}")
    limits = ("--num-records", str(RECORDS), "--timeout", "120000", "--command-config", str(settings))
    header, figures = run(CONSUMER_PERFORMANCE, *to_server, *limits).splitlines()[-2:]
    named = dict(zip(re.split(r",\s*", header), re.split(r",\s*", figures), strict=True))
    assert named["data.consumed.in.nMsg"] == str(RECORDS)


def test_configs_command_alters_and_describes_a_topic(bootstrap: str, topic: str) -> None:
    named = ("--bootstrap-server", bootstrap, "--entity-type", "topics", "--entity-name", topic)
    run(CONFIGS_COMMAND, *named, "--alter", "--add-config", "retention.ms=7654321,cleanup.policy=[compact,delete]")
    told = run(CONFIGS_COMMAND, *named, "--describe")
    assert "retention.ms=7654321" in told
    assert "cleanup.policy=compact,delete" in told
    run(CONFIGS_COMMAND, *named, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=7654321" not in run(CONFIGS_COMMAND, *named, "--describe")
    with Cluster(bootstrap) as cluster:
        node_id = Admin(cluster).describe_cluster().brokers[0].node_id
    broker = ("--bootstrap-server", bootstrap, "--entity-type", "brokers", "--entity-name", str(node_id))
    assert "num.partitions=1" in run(CONFIGS_COMMAND, *broker, "--describe", "--all")


def test_log_dirs_command_shows_the_bytes_of_a_topic(broker: RunningBroker, filled: str) -> None:
    output = run(LOG_DIRS_COMMAND, "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", filled)
    (told,) = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    (directory,) = told["brokers"][0]["logDirs"]
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    log = broker.data_dir / f"{filled}-0" / f"{0:020}.log"
    assert (partition["partition"], partition["size"]) == (f"{filled}-0", log.stat().st_size)


def test_console_consumer_reads_every_codec_in_a_group(bootstrap: str, topic: str, now_ms: int) -> None:
    for number, codec in enumerate(CODECS):
        confluent_client.produce(bootstrap, topic, [Sent(None, codec.encode() * 60, (), now_ms + number)], codec)
    read = read_in_group(bootstrap, topic, f"codecs-{topic}", "classic", count=len(CODECS))
    assert read == [codec * 60 for codec in CODECS]


def test_configs_command_alters_and_describes_a_consumer_group(bootstrap: str, topic: str) -> None:
    group = f"configs-{topic}"
    named = ("--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", group)
    run(CONFIGS_COMMAND, *named, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in run(CONFIGS_COMMAND, *named, "--describe")
    every = run(CONFIGS_COMMAND, "--bootstrap-server", bootstrap, "--entity-type", "groups", "--describe")
    assert group in every
    run(CONFIGS_COMMAND, *named, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms=50000" not in run(CONFIGS_COMMAND, *named, "--describe")
