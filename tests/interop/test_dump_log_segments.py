"""Apache Kafka's own DumpLogSegments reads the files of Ottla's logs and finds no error."""

from __future__ import annotations

import random
import re
import uuid
from pathlib import Path

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.header import HEADER
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.peers.java_tool import DUMP_LOG_SEGMENTS, dump_complaints, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

CLICKS = TopicPartition("clicks", 0)
BATCHES = 400
# DumpLogSegments reports errors with these words, on standard error or in a batch's line.
COMPLAINTS = re.compile(r"Mismatches|Non-consecutive|not found|out of order|isvalid: false|Exception|could not", re.I)


def open_directory(path: Path) -> LogDirectory:
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=1_000)
    return LogDirectory.open(
        PosixDisk(), str(path), clock=SystemClock(), config_of=lambda _: config, node_id=1, cluster_id="cluster"
    )


def fill(log: Log, rng: random.Random) -> None:
    """Every codec, idempotent producers, times out of order, two epochs, several segments."""
    next_sequence = {4: 0, 5: 0}
    for number in range(BATCHES):
        if number == BATCHES // 2:
            log.start_epoch(3)
        builder = BatchBuilder()
        for _ in range(rng.randrange(1, 20)):
            timestamp_ms = 1_700_000_000_000 + number * 100 + rng.randrange(-500, 500)
            builder.append(timestamp_ms, rng.choice([None, b"key"]), rng.randbytes(rng.randrange(100)))
        producer_id = rng.choice([-1, 4, 5])
        codec = rng.choice(list(Codec))
        if producer_id < 0:
            batch = builder.build(codec=codec)
        else:
            sequence = next_sequence[producer_id]
            next_sequence[producer_id] += builder.records_count
            batch = builder.build(codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        log.append(memoryview(batch), HEADER.unpack_from(batch), 1_700_000_000_000)


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_apache_kafka_finds_all_files_of_a_log_valid(tmp_path: Path, stop: str) -> None:
    directory = open_directory(tmp_path / "data")
    [log] = run_inline(directory.create([(CLICKS, uuid.UUID(int=1000))]))
    log.start_epoch(0)
    fill(log, random.Random(11))
    assert len(log.segments) > 3
    log_end_offset = log.log_end_offset
    if stop == "crash":
        # Recovery rebuilds the indexes and snapshots; they are written when the log is closed.
        directory.abandon()
        directory = open_directory(tmp_path / "data")
    directory.close()
    files = sorted(str(path) for path in (tmp_path / "data" / str(CLICKS)).glob("0*"))
    assert {Path(name).suffix for name in files} == {".log", ".index", ".timeindex", ".snapshot"}

    try:
        dump = run_tool(DUMP_LOG_SEGMENTS, "--deep-iteration", "--files", ",".join(files))
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")

    assert dump.returncode == 0
    assert dump_complaints(dump.stderr) == ""
    assert COMPLAINTS.search(dump.stdout) is None
    assert dump.stdout.count("isvalid: true") == BATCHES
    assert len(re.findall(r"^\| offset: ", dump.stdout, re.M)) == log_end_offset
    assert len(re.findall(r"^timestamp: ", dump.stdout, re.M)) > 50
    assert len(re.findall(r"^offset: ", dump.stdout, re.M)) > 50
