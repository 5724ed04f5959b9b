"""A topic that was compacted: foreign clients read it to its end, Apache Kafka's tool reads its files."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.peers.java_tool import DUMP_LOG_SEGMENTS, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

KEYS_COUNT = 200
ROUNDS = 30
SETTINGS = {"log.cleaner.backoff.ms": "100"}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "500",
}
WITHIN_S = 120.0
COMPLAINTS = re.compile(r"Mismatches|Non-consecutive|not found|out of order|isvalid: false|Exception|could not", re.I)

# An empty batch keeps its time, as Apache Kafka's own cleaner leaves it; the tool looks for it in the records.  Where a
# batch is not compressed it expects all offsets: librdkafka sends those so that compression would not make smaller.  It
# takes -1 for the offset before a segment's first.
LEFT_BY_ANY_CLEANER = re.compile(
    r"Found timestamp mismatch in :\S+\n +Index timestamp: \d+, log timestamp: -1\n"
    r"|Non-consecutive offsets in \S+\n( +(-1|\d+) is followed by \d+\n)+"
)


def fill(bootstrap: str, topic: str, codec: str, rng: random.Random) -> dict[bytes, bytes]:
    """Write every key many times and delete some at the end; return the remaining values."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 1}
    )
    newest: dict[bytes, bytes] = {}
    for _ in range(ROUNDS):
        for number in rng.sample(range(KEYS_COUNT), KEYS_COUNT):
            key = b"key-%04d" % number
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(200))
            producer.produce(topic, key=key, value=value)
            if value is None:
                newest.pop(key, None)
            else:
                newest[key] = value
        assert producer.flush(WITHIN_S) == 0
    return newest


def read_to_the_end(bootstrap: str, topic: str) -> tuple[dict[bytes, bytes], int]:
    """(a reader's final values, how many records it read)."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "enable.partition.eof": True})
    state: dict[bytes, bytes] = {}
    count, last_offset = 0, -1
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        give_up_s = time.monotonic() + WITHIN_S
        while time.monotonic() < give_up_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return state, count
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert offset > last_offset
            assert isinstance(key, bytes)
            last_offset, count = offset, count + 1
            if value is None:
                state.pop(key, None)
            else:
                assert isinstance(value, bytes)
                state[key] = value
        raise AssertionError(f"no end of {topic} within {WITHIN_S} s, {count} records so far")
    finally:
        consumer.close()


def make_topic(bootstrap: str) -> str:
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, 1, configs=CONFIG)
    return name


def wait_until_cleaned(broker: RunningBroker, topic: str) -> None:
    """Until a clean reached the last closed segment."""
    directory = broker.data_dir / f"{topic}-0"

    def is_cleaned(told: list[str]) -> bool:
        active = max(int(path.name[:20]) for path in directory.glob("0*.log"))
        return any(f"cleaned_end={active} " in line for line in told)

    eventually(lambda: [line for line in broker.log_lines if f"partition={topic}-0" in line], is_cleaned)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_reader_of_a_compacted_topic_ends_up_with_the_newest_values(codec: str) -> None:
    with RunningBroker(settings=SETTINGS) as broker:
        topic = make_topic(broker.bootstrap)
        newest = fill(broker.bootstrap, topic, codec, random.Random(codec))
        wait_until_cleaned(broker, topic)
        state, count = read_to_the_end(broker.bootstrap, topic)
        assert state == newest
        assert count < ROUNDS * KEYS_COUNT / 2
        broker.kill()
        broker.start()
        assert read_to_the_end(broker.bootstrap, topic)[0] == newest


def test_apache_kafka_finds_all_files_of_a_compacted_log_valid() -> None:
    with RunningBroker(settings=SETTINGS) as broker:
        topic = make_topic(broker.bootstrap)
        fill(broker.bootstrap, topic, "lz4", random.Random(4))
        wait_until_cleaned(broker, topic)
        _, count = read_to_the_end(broker.bootstrap, topic)
        broker.stop()
        files = sorted(str(path) for path in Path(broker.data_dir / f"{topic}-0").glob("0*"))
        files = [name for name in files if not name.endswith(".deleted")]
        try:
            dump = run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", ",".join(files))
        except KafkaUnavailable as reason:
            pytest.skip(f"Apache Kafka is not available: {reason}")
    assert dump.returncode == 0
    assert LEFT_BY_ANY_CLEANER.sub("", dump.stderr) == ""
    assert COMPLAINTS.search(dump.stdout) is None
    assert len(re.findall(r"^\| offset: ", dump.stdout, re.M)) == count
    assert "deleteHorizonMs: OptionalLong[" in dump.stdout


def test_killed_cleaner_leaves_the_log_unchanged_and_is_restarted() -> None:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "400000"}
    with RunningBroker(settings=settings) as broker:
        topic = make_topic(broker.bootstrap)
        rng = random.Random(1)

        def kill_the_cleaner() -> bool:
            """Whether it was killed within a clean: on a busy machine it may be done already."""
            newest = fill(broker.bootstrap, topic, "none", rng)
            os.kill(_wait_for_child(broker.pid), signal.SIGKILL)
            assert read_to_the_end(broker.bootstrap, topic)[0] == newest
            wait_until_cleaned(broker, topic)
            assert read_to_the_end(broker.bootstrap, topic)[0] == newest
            return any("log.clean_failed" in line for line in broker.log_lines)

        eventually(kill_the_cleaner)


def test_cleaner_dies_with_its_broker() -> None:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "100000"}
    with RunningBroker(settings=settings) as broker:
        topic = make_topic(broker.bootstrap)
        newest = fill(broker.bootstrap, topic, "none", random.Random(1))
        child = _wait_for_child(broker.pid)
        broker.kill()
        eventually(lambda: not Path(f"/proc/{child}").exists())
        broker.start()
        assert read_to_the_end(broker.bootstrap, topic)[0] == newest


def _wait_for_child(pid: int) -> int:
    """The process that cleans, once it writes."""
    command = ["pgrep", "-P", str(pid), "-f", "compaction.worker"]
    found = eventually(lambda: subprocess.run(command, capture_output=True, check=False).stdout)
    return int(found.split()[0])
