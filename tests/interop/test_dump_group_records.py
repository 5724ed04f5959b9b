"""Apache Kafka's DumpLogSegments, with its decoder of `__consumer_offsets`, reads the group records of Ottla."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from ottla.groups.commands import ConsumerGroupHeartbeat, DeleteOffsets, TopicPartitions
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.header import HEADER
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log_config import LogConfig
from tests.peers.java_tool import DUMP_LOG_SEGMENTS, run_tool
from tests.peers.kafka_jars import KafkaUnavailable
from tests.unit.groups.coordinator import GROUP, START_WALL_MS, TOPIC, Coordinator, MemoryLog

pytestmark = pytest.mark.interop

OFFSETS = TopicPartition("__consumer_offsets", 0)
RECORD = re.compile(r"^\| offset: .*? key: (\{.*\}) payload: (\{.*\}|<DELETE>|.*)$", re.M)


def logged_by_groups() -> MemoryLog:
    """Each kind of record that a shard writes."""
    topics = TopicsImage.of([TopicImage(TOPIC, uuid.UUID(int=7), 4)])
    coordinator = Coordinator(topics=topics)
    (joined,) = coordinator.join_together([coordinator.ask_join(instance_id="one")])
    coordinator.ask_sync(joined, {joined.member_id: b"part"}, instance_id="one")
    coordinator.commit({0: 41}, group_id="simple", metadata="café")
    coordinator.commit({1: 42}, group_id="simple", retention_ms=1_000)
    coordinator.ask(DeleteOffsets("simple", [TopicPartitions(TOPIC, [0])]))
    coordinator.leave(("", "one"))
    beat = ConsumerGroupHeartbeat(
        "modern", "m", 0, "c", "/h", rebalance_timeout_ms=60_000, topic_names=[TOPIC], owned=[]
    )
    coordinator.ask(beat)
    return coordinator.log


def write_partition(path: Path, log: MemoryLog) -> Path:
    config = LogConfig()
    directory = LogDirectory.open(
        PosixDisk(), str(path), clock=SystemClock(), config_of=lambda _: config, node_id=1, cluster_id="cluster"
    )
    [partition] = run_inline(directory.create([(OFFSETS, uuid.UUID(int=1000))]))
    partition.start_epoch(0)
    for records in log.batches:
        builder = BatchBuilder()
        for key, value in records:
            builder.append(START_WALL_MS, key, value)
        batch = builder.build()
        partition.append(memoryview(batch), HEADER.unpack_from(batch), START_WALL_MS)
    directory.close()
    (segment,) = (path / str(OFFSETS)).glob("0*.log")
    return segment


def decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_apache_kafka_decodes_every_record_of_groups(tmp_path: Path) -> None:
    log = logged_by_groups()
    segment = write_partition(tmp_path / "data", log)
    try:
        dump = run_tool(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", str(segment))
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert dump.returncode == 0, dump.stderr
    found = [(decoded(key), decoded(payload)) for key, payload in RECORD.findall(dump.stdout)]
    assert len(found) == log.end, dump.stdout
    generations = [value for key, value in found if key["type"] == "2"]
    assert generations[0]["version"] == "3"
    stable = generations[0]["data"]
    assert (stable["protocolType"], stable["generation"], stable["protocol"]) == ("consumer", 1, "range")
    (member,) = stable["members"]
    assert (member["groupInstanceId"], member["sessionTimeout"], member["clientId"]) == ("one", 10_000, "client")
    assert (generations[1]["data"]["generation"], generations[1]["data"]["members"]) == (2, [])
    offsets = [(key["data"]["partition"], value) for key, value in found if key["type"] == "1"]
    assert [(partition, value["version"]) for partition, value in offsets[:2]] == [(0, "3"), (1, "1")]
    noted = offsets[0][1]["data"]
    assert (noted["offset"], noted["leaderEpoch"], noted["metadata"]) == (41, 7, "café")
    assert noted["commitTimestamp"] >= START_WALL_MS
    expiring = offsets[1][1]["data"]
    assert expiring["expireTimestamp"] == expiring["commitTimestamp"] + 1_000
    assert offsets[2][0] == 0
    assert not isinstance(offsets[2][1], dict)
    assert {key["type"] for key, _ in found} >= {"1", "2", "3", "5", "6", "7", "8"}
    assert all(key["data"]["group"] in {GROUP, "simple"} for key, _ in found if key["type"] == "1")
