"""`ottla log import` of a directory of Apache Kafka 4.4: every value is read, appends work, the source is unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.fetching.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition as Partition
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla, ottla_process
from tests.eventually import eventually
from tests.interop.test_dump_log_segments import COMPLAINTS
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.java_tool import DUMP_LOG_SEGMENTS, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# The least that Apache Kafka 4 allows.
SEGMENT_BYTES = 1_048_576
WITHIN_S = 120
START = 10  # DeleteRecords of `trimmed` up to here


class Source(NamedTuple):
    """A stopped broker's directory, and the values of each topic's partitions as its own consumers saw them."""

    path: Path
    values: dict[str, dict[int, list[tuple[int, bytes | None]]]]
    topic_ids: dict[str, str]


def produce(bootstrap: str, topic: str, partition: int, values: list[bytes], **options: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **options})
    for number, value in enumerate(values):
        producer.produce(topic, value=value, key=b"key-%d" % (number % 20), partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def transact(bootstrap: str, topic: str, values: list[bytes], ending: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{ending}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=0)
    producer.flush(30)
    if ending == "commit":
        producer.commit_transaction(30)
    elif ending == "abort":
        producer.abort_transaction(30)


def consume(bootstrap: str, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    """Offsets and values of everything up to the partition's end, with checksums checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    found: list[tuple[int, bytes | None]] = []
    give_up_s = time.monotonic() + WITHIN_S
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while time.monotonic() < give_up_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return found
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.value()))
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition} did not end")


def fill(kafka: ApacheKafka) -> None:
    """Topics of each kind: all codecs over several segments, trimmed, compacted, with transactions of each end."""
    rng = random.Random(4)
    small = {"segment.bytes": str(SEGMENT_BYTES)}
    with Cluster(kafka.bootstrap) as cluster:
        admin = Admin(cluster)
        admin.create_topic("plain", 2, 1, small)
        admin.create_topic("trimmed.topic-1", 1, 1)
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **small}
        admin.create_topic("compacted", 1, 1, compacted)
        for name in ("empty", "committed", "aborted", "open"):
            admin.create_topic(name, 1, 1)
        for codec in CODECS:
            text = [b"value %d of %s " % (number, codec.encode()) * 20 for number in range(1_000)]
            noise = [rng.randbytes(2_000) for _ in range(300)]
            produce(kafka.bootstrap, "plain", 0, text + noise, **{"compression.type": codec})
            produce(kafka.bootstrap, "plain", 1, text[:10], **{"compression.type": codec})
        produce(kafka.bootstrap, "trimmed.topic-1", 0, [b"%d" % number for number in range(50)])
        admin.delete_records({Partition("trimmed.topic-1", 0): START})
        for _ in range(3):
            produce(kafka.bootstrap, "compacted", 0, [rng.randbytes(2_000) for _ in range(600)])
        transact(kafka.bootstrap, "committed", [b"a", b"b", b"c"], "commit")
        produce(kafka.bootstrap, "committed", 0, [b"d"])
        transact(kafka.bootstrap, "aborted", [b"a", b"b"], "abort")
        transact(kafka.bootstrap, "open", [b"a"], "nothing")
        end = list_offsets(cluster, {Partition("compacted", 0): LATEST})[Partition("compacted", 0)].offset
    # Apache Kafka's cleaner, in its own time.
    eventually(lambda: len(consume(kafka.bootstrap, "compacted", 0)), lambda count: count < end, every_s=0.5)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    properties = {
        "log.cleaner.backoff.ms": "200",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
    }
    try:
        with contextlib.ExitStack() as stack:
            kafka = stack.enter_context(ApacheKafka(properties))
            fill(kafka)
            done = ottla("log", "import", kafka.data_dir, "--data-dir", kafka.data_dir.parent / "new", status=1)
            assert "is in use: its broker runs" in done.err
            with Cluster(kafka.bootstrap) as cluster:
                topics = [topic for topic in Admin(cluster).list_topics() if not topic.is_internal]
            names = {topic.name: len(topic.partitions) for topic in topics if topic.name != "open"}
            values = {
                name: {index: consume(kafka.bootstrap, name, index) for index in range(count)}
                for name, count in names.items()
            }
            kafka.stop()
            path = tmp_path_factory.mktemp("apache-kafka") / "data"
            shutil.copytree(kafka.data_dir, path)
            yield Source(path, values, {topic.name: topic.topic_id.hex for topic in topics})
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


def fingerprint(path: Path) -> dict[str, tuple[str, int, int]]:
    """Every file's checksum, size and time of change."""
    return {
        str(file.relative_to(path)): (
            hashlib.sha256(file.read_bytes()).hexdigest(),
            file.stat().st_size,
            file.stat().st_mtime_ns,
        )
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def names_in(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


@pytest.mark.parametrize("how", ["--copy", "--link"])
def test_import_copies_everything_and_leaves_the_source_unchanged(source: Source, tmp_path: Path, how: str) -> None:
    before, names = fingerprint(source.path), names_in(source.path)
    data_dir = tmp_path / "ottla"
    without = ("--exclude", "open")
    done = ottla("log", "import", source.path, "--data-dir", data_dir, how, *without)
    assert "stopped cleanly" in done.err
    assert "retention is off for" in done.err
    assert "aborted has transactions: all of them have ended" in done.err
    assert "compacted was compacted" in done.err
    assert fingerprint(source.path) == before

    with RunningBroker(data_dir) as broker:
        for topic, partitions in source.values.items():
            for index, expected in partitions.items():
                assert consume(broker.bootstrap, topic, index) == expected
        with Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            found = {topic.name: topic.topic_id.hex for topic in admin.list_topics()}
            assert {name: source.topic_ids[name] for name in source.values} == {
                name: found[name] for name in source.values
            }
            settings = admin.describe_configs(ConfigResource(ResourceType.TOPIC, "plain"))
            assert (settings["retention.ms"].value, settings["retention.bytes"].value) == ("-1", "-1")
            trimmed = Partition("trimmed.topic-1", 0)
            assert list_offsets(cluster, {trimmed: EARLIEST})[trimmed].offset == START
        for topic, partitions in source.values.items():
            for index, expected in partitions.items():
                produce(broker.bootstrap, topic, index, [b"appended"] * 50, **{"compression.type": "lz4"})
                after = consume(broker.bootstrap, topic, index)
                assert after[: len(expected)] == expected
                assert [value for _, value in after[len(expected) :]] == [b"appended"] * 50
        broker.kill()
        broker.start()
        assert len(consume(broker.bootstrap, "plain", 0)) == len(source.values["plain"][0]) + 50
    assert fingerprint(source.path) == before
    assert names_in(source.path) == names
    links = [file for file in data_dir.rglob("*.log") if file.stat().st_nlink > 1]
    assert bool(links) is (how == "--link")

    ottla("log", "verify", "--deep", data_dir)
    ottla("log", "repair", data_dir)
    check_dump(data_dir, [topic for topic in source.values if topic != "compacted"], COMPLAINTS)
    # A compacted log's offsets have gaps, which the tool names.
    check_dump(data_dir, ["compacted"], re.compile(COMPLAINTS.pattern.replace("Non-consecutive|", ""), re.I))


def check_dump(data_dir: Path, topics: list[str], complaints: re.Pattern[str]) -> None:
    files = [
        str(path) for topic in topics for path in sorted(data_dir.glob(f"{topic}-[0-9]/0*")) if path.stat().st_size
    ]
    dump = run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", ",".join(files))
    assert dump.returncode == 0
    assert complaints.search(dump.stdout) is None
    assert "isvalid: true" in dump.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "a transaction that is still open, from offset 0 on"),
        (("--topic", "open"), "a transaction that is still open, from offset 0 on"),
        (("--topic", "palin"), "did you mean plain?"),
        (("--topic", "plain", "--config", "STRANGER"), "has settings for other"),
    ],
)
def test_import_refuses_invalid_input_and_writes_nothing(
    source: Source, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    files = {"STRANGER": '{"other": {"retention.ms": 1}}'}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    given = [str(tmp_path / each) if each in files else each for each in arguments]
    done = ottla("log", "import", source.path, "--data-dir", tmp_path / "ottla", *given, status=1)
    assert expected in done.err
    assert "hint: " in done.err
    assert not (tmp_path / "ottla").exists()


def test_import_reads_settings_from_a_file_and_refuses_a_second_run(source: Source, tmp_path: Path) -> None:
    config = tmp_path / "topics.properties"
    config.write_text("plain/retention.ms=86400000000000\n*/max.message.bytes=2000000\n")
    data_dir = tmp_path / "ottla"
    arguments = ("log", "import", source.path, "--data-dir", data_dir, "--topic", "plain", "--config", config)
    ottla(*arguments, "--dry-run")
    assert not data_dir.exists()
    assert "retention is off" not in ottla(*arguments).err
    with RunningBroker(data_dir) as broker, Cluster(broker.bootstrap) as cluster:
        settings = Admin(cluster).describe_configs(ConfigResource(ResourceType.TOPIC, "plain"))
        assert settings["retention.ms"].value == "86400000000000"
        assert settings["max.message.bytes"].value == "2000000"
        done = ottla("log", "import", source.path, "--data-dir", data_dir, "--topic", "empty", status=1)
        assert "is in use" in done.err
    assert "topic 'plain' exists already" in ottla(*arguments, status=1).err
    ottla("log", "import", source.path, "--data-dir", data_dir, "--topic", "empty")
    with RunningBroker(data_dir) as broker:
        assert consume(broker.bootstrap, "plain", 1) == source.values["plain"][1]
        assert consume(broker.bootstrap, "empty", 0) == []


def test_import_of_a_crashed_directory_leaves_out_incomplete_batches(source: Source, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    shutil.copytree(source.path, crashed)
    (crashed / ".kafka_cleanshutdown").unlink()
    active = max((crashed / "plain-1").glob("*.log"))
    whole = active.read_bytes()
    active.write_bytes(whole[:-7])
    data_dir = tmp_path / "ottla"
    arguments = ("log", "import", crashed, "--data-dir", data_dir, "--topic", "plain")
    # The stop was in fact clean, and all was flushed: missing records were acknowledged.
    assert "this was whole on the disk once" in ottla(*arguments, status=1).err
    # A broker that is killed has flushed what is before its last segment.
    (crashed / "recovery-point-offset-checkpoint").write_text(f"0\n1\nplain 1 {int(active.stem)}\n")
    done = ottla(*arguments)
    assert "not stopped cleanly" in done.err
    assert "are a write that the crash interrupted" in done.err
    with RunningBroker(data_dir) as broker:
        read = consume(broker.bootstrap, "plain", 1)
    expected = source.values["plain"][1]
    assert read == expected[: len(read)]
    assert len(expected) - 10 <= len(read) < len(expected)


def test_serve_on_a_directory_of_apache_kafka_names_the_import(source: Source) -> None:
    before = fingerprint(source.path)
    done = ottla_process("serve", "--data-dir", source.path, "--listen", "127.0.0.1:0", status=1)
    assert "was made by Apache Kafka" in done.err
    assert f"ottla log import {source.path}" in done.err
    changed = {name for name, found in fingerprint(source.path).items() if before.get(name) != found}
    assert changed <= {".lock"}
    assert os.access(source.path, os.W_OK)
