from __future__ import annotations

import errno
import random
from collections.abc import Mapping
from uuid import UUID

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import read_file
from ottla.storage import checkpoints
from ottla.storage.checkpoints import DamagedCheckpoint, OffsetCheckpoint, parse_offsets
from ottla.testing.memory_disk import MemoryDisk, Survival

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = {TopicPartition("orders", 0): 12, TopicPartition("page_views", 11): 2**63 - 1}
TOPIC_ID = UUID("12345678-9abc-4def-8123-456789abcdef")


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.make_directory("/data")
    made.sync_directory("/")
    return made


def put(disk: MemoryDisk, path: str, content: bytes) -> None:
    disk.open(path, create=True).write_at(0, content)


def test_offsets_come_back(disk: MemoryDisk) -> None:
    checkpoints.write_recovery_points(disk, "/data", OFFSETS)
    checkpoints.write_log_starts(disk, "/data", {})
    assert checkpoints.read_recovery_points(disk, "/data") == OFFSETS
    assert checkpoints.read_log_starts(disk, "/data") == {}


def test_offsets_are_lines_that_kafka_reads_with_a_checksum_as_the_last_one(disk: MemoryDisk) -> None:
    checkpoints.write_recovery_points(disk, "/data", OFFSETS)
    lines = read_file(disk, "/data/recovery-point-offset-checkpoint").decode().split("\n")
    assert lines[:4] == ["0", "3", "orders 0 12", "page_views 11 9223372036854775807"]
    assert lines[4].startswith("__ottla_checksum 0 ")
    assert lines[5:] == [""]


def test_checkpoint_that_kafka_wrote_is_believed_without_a_checksum() -> None:
    content = b"0\n2\norders 0 12\norders 1 0\n"
    found = {TopicPartition("orders", 0): 12, TopicPartition("orders", 1): 0}
    assert parse_offsets(content, "x", is_ours=False) == found
    assert parse_offsets(b"", "x", is_ours=False) == {}
    for ours in (content, b""):
        with pytest.raises(DamagedCheckpoint, match="checksum"):
            parse_offsets(ours, "x")


def test_flip_of_any_byte_is_reported_or_changes_no_offset() -> None:
    content = checkpoints.format_offsets(OFFSETS)
    for position in range(len(content)):
        for flip in (0x01, 0x04, 0x10):
            damaged = bytearray(content)
            damaged[position] ^= flip
            try:
                assert parse_offsets(bytes(damaged), "x") == OFFSETS
            except DamagedCheckpoint:
                continue


@pytest.mark.parametrize(
    "content",
    [
        b"0",
        b"1\n0\n",
        b"0\n-1\n",
        b"0\n2\norders 0 12\n",
        b"0\n1\norders 0 12\norders 1 12\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders x 12\n",
        b"0\n1\norders 0 9223372036854775808\n",
        b"0\n2\norders 0 12\norders 0 13\n",
        b"0\n1\n" + b"9" * 5_000 + b"\n",
        b"\xff\xfe",
        bytes(40),
    ],
)
def test_damage_is_reported(content: bytes) -> None:
    with pytest.raises(DamagedCheckpoint, match="x"):
        parse_offsets(content, "x")


def test_nothing_is_known_of_log_starts_when_their_file_is_damaged(disk: MemoryDisk) -> None:
    assert checkpoints.read_log_starts(disk, "/data") == {}
    put(disk, "/data/log-start-offset-checkpoint", b"0\n7\n")
    put(disk, "/data/recovery-point-offset-checkpoint", b"0\n7\n")
    assert checkpoints.read_log_starts(disk, "/data") is None
    assert checkpoints.read_recovery_points(disk, "/data") == {}


def test_replacement_survives_a_crash_as_soon_as_it_returns(disk: MemoryDisk) -> None:
    checkpoints.write_log_starts(disk, "/data", OFFSETS)
    assert checkpoints.read_log_starts(disk.crash(random.Random(1), Survival.NOTHING), "/data") == OFFSETS


def test_topic_id_is_written_as_kafka_writes_it(disk: MemoryDisk) -> None:
    assert checkpoints.read_topic_id(disk, "/data") is None
    checkpoints.write_topic_id(disk, "/data", TOPIC_ID)
    assert read_file(disk, "/data/partition.metadata") == b"version: 0\ntopic_id: EjRWeJq8Te-BI0VniavN7w"
    assert checkpoints.read_topic_id(disk, "/data") == TOPIC_ID


@pytest.mark.parametrize(
    "content", [b"", b"version: 0", b"version: 1\ntopic_id: EjRWeJq8Te-BI0VniavN7w", b"version: 0\ntopic_id: x"]
)
def test_damaged_topic_id_is_reported(disk: MemoryDisk, content: bytes) -> None:
    put(disk, "/data/partition.metadata", content)
    with pytest.raises(DamagedCheckpoint):
        checkpoints.read_topic_id(disk, "/data")


def test_meta_properties_come_back(disk: MemoryDisk) -> None:
    assert checkpoints.read_meta_properties(disk, "/data") is None
    properties = {"version": "1", "cluster.id": "EjRWeJq8Te-BI0VniavN7w", "node.id": "3"}
    checkpoints.write_meta_properties(disk, "/data", properties)
    assert checkpoints.read_meta_properties(disk, "/data") == properties


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it has no version"),
        (b"#\nversion=1\n", "it has no node.id"),
        # Cut where the rest would have said that it is ours.
        (b"#\nversion=1\nnode.id=0\n", "it has no cluster.id"),
        (b"version=1\nnode.id=zero\ncluster.id=a\n", "node.id 'zero' is no number"),
        (b"\xff\xfe", "it is no text"),
    ],
)
def test_meta_properties_with_foreign_content_are_damaged(disk: MemoryDisk, content: bytes, reason: str) -> None:
    put(disk, "/data/meta.properties", content)
    with pytest.raises(checkpoints.DamagedCheckpoint, match=f"/data/meta.properties is damaged: {reason}"):
        checkpoints.read_meta_properties(disk, "/data")


def test_meta_properties_of_java_are_read(disk: MemoryDisk) -> None:
    put(disk, "/data/meta.properties", b"#\n#Sat Nov 01 10:00:00 UTC 2025\ncluster.id=a\\=b\nnode.id=1\nversion=1\n")
    assert checkpoints.read_meta_properties(disk, "/data") == {"cluster.id": "a=b", "node.id": "1", "version": "1"}


def test_damaged_meta_properties_are_reported(disk: MemoryDisk) -> None:
    put(disk, "/data/meta.properties", b"node.id=1\n\0\0\0\0\n")
    with pytest.raises(DamagedCheckpoint):
        checkpoints.read_meta_properties(disk, "/data")


def test_clean_shutdown_mark_counts_once_even_if_the_start_fails(disk: MemoryDisk) -> None:
    assert not checkpoints.take_clean_shutdown_mark(disk, "/data")
    checkpoints.write_clean_shutdown_mark(disk, "/data", broker_epoch=9)
    assert read_file(disk, "/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":9}'
    assert checkpoints.take_clean_shutdown_mark(disk, "/data")
    for seed in range(20):
        assert not checkpoints.take_clean_shutdown_mark(disk.crash(random.Random(seed)), "/data")


def test_change_during_a_write_is_written_by_the_next_write() -> None:
    """A change may come while a thread writes: until its own write the file lacks it."""
    written: list[dict[TopicPartition, int]] = []

    def write(offsets: Mapping[TopicPartition, int]) -> None:
        written.append(dict(offsets))
        if len(written) == 1:
            assert checkpoint.is_stale, "the file is not replaced yet"
            checkpoint.offsets[SECOND] = 2
            checkpoint.changed()

    checkpoint = OffsetCheckpoint({}, write)
    checkpoint.offsets[FIRST] = 1
    checkpoint.changed()
    stale_after = []
    for _ in range(3):
        checkpoint.write()
        stale_after.append(checkpoint.is_stale)
    assert stale_after == [True, False, False]
    assert written == [{FIRST: 1}, {FIRST: 1, SECOND: 2}]


def test_write_that_failed_leaves_the_file_stale() -> None:
    def write(offsets: Mapping[TopicPartition, int]) -> None:
        raise OSError(errno.EIO, "the disk failed")

    checkpoint = OffsetCheckpoint({}, write)
    checkpoint.changed()
    with pytest.raises(OSError, match="the disk failed"):
        checkpoint.write()
    assert checkpoint.is_stale
