from __future__ import annotations

import struct

import pytest

from ottla.records.checksum import crc32c
from ottla.runtime.disk import read_file
from ottla.storage.producers.producer_snapshot import (
    DamagedSnapshot,
    decode_snapshot,
    encode_snapshot,
    load_latest_snapshot,
    remove_snapshots,
    snapshot_offsets_in,
    write_snapshot,
)
from ottla.storage.producers.producer_state import ProducerEntry, ProducerStates
from ottla.testing.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000


def some_states() -> ProducerStates:
    states = ProducerStates()
    for number in range(3):
        states.update(7, 2, number * 10, number * 10 + 9, 100 + number * 10, 9, NOW_MS + number)
    states.update(8, 0, 2**31 - 2, 1, 500, 3, NOW_MS)
    marked = ProducerEntry(5)
    marked.last_active_ms = NOW_MS
    marked.coordinator_epoch = 3
    states.restore(9, marked)
    return states


def facts_of(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (
            entry.epoch,
            entry.window(),
            entry.next_sequence,
            entry.last_active_ms,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for producer_id, entry in states.entries()
    }


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.make_directory("/t-0")
    return made


def test_snapshot_gives_back_every_remembered_batch() -> None:
    assert facts_of(decode_snapshot(encode_snapshot(some_states()))) == facts_of(some_states())


def test_snapshot_without_producers_is_ten_bytes() -> None:
    content = encode_snapshot(ProducerStates())
    assert content == struct.pack(">hIi", 1, crc32c(bytes(4)), 0)
    assert len(decode_snapshot(content)) == 0


def test_snapshot_has_kafkas_layout() -> None:
    states = ProducerStates()
    states.update(7, 2, 10, 19, 110, 9, NOW_MS)
    entry = struct.pack(">qhiqiqiq", 7, 2, 19, 119, 9, NOW_MS, -1, -1)
    covered = struct.pack(">i", 1) + entry
    assert encode_snapshot(states) == struct.pack(">hI", 1, crc32c(covered)) + covered


def test_newest_batch_of_a_producer_comes_last() -> None:
    # Kafka's reader keeps the last entry of an id.
    content = encode_snapshot(some_states())
    last_sequences = [fields[2] for fields in struct.iter_unpack(">qhiqiqiq", content[10:]) if fields[0] == 7]
    assert last_sequences == [9, 19, 29]


def test_snapshot_of_kafka_with_one_batch_for_each_producer_is_read() -> None:
    covered = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 19, 119, 9, NOW_MS, 4, 110)
    states = decode_snapshot(struct.pack(">hI", 1, crc32c(covered)) + covered)
    assert states.check(7, 2, 10, 19) == 110
    assert states.check(7, 2, 20, 20) is None
    entry = states.entry(7)
    assert entry is not None
    assert (entry.coordinator_epoch, entry.current_txn_first_offset) == (4, 110)


def test_every_cut_and_every_flipped_byte_is_reported() -> None:
    content = encode_snapshot(some_states())
    for length_bytes in range(len(content)):
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(content[:length_bytes])
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(bytes(damaged))


def test_count_that_does_not_fit_is_reported_although_the_checksum_is_right() -> None:
    covered = struct.pack(">i", 2**31 - 1)
    with pytest.raises(DamagedSnapshot, match="cannot hold"):
        decode_snapshot(struct.pack(">hI", 1, crc32c(covered)) + covered)


def test_newest_snapshot_up_to_the_limit_is_loaded(disk: MemoryDisk) -> None:
    write_snapshot(disk, "/t-0", 10, ProducerStates())
    write_snapshot(disk, "/t-0", 200, some_states())
    write_snapshot(disk, "/t-0", 300, ProducerStates())
    loaded = load_latest_snapshot(disk, "/t-0", 299)
    assert loaded is not None
    assert loaded.offset == 200
    assert facts_of(loaded.states) == facts_of(some_states())
    assert load_latest_snapshot(disk, "/t-0", 9) is None


def test_damaged_snapshot_is_removed_and_the_next_older_one_is_loaded(disk: MemoryDisk) -> None:
    write_snapshot(disk, "/t-0", 10, some_states())
    write_snapshot(disk, "/t-0", 20, some_states())
    disk.open("/t-0/00000000000000000020.snapshot").truncate(30)
    loaded = load_latest_snapshot(disk, "/t-0", 50)
    assert loaded is not None
    assert loaded.offset == 10
    assert disk.list_directory("/t-0") == ["00000000000000000010.snapshot"]


def test_written_again_it_is_a_new_file(disk: MemoryDisk) -> None:
    write_snapshot(disk, "/t-0", 10, some_states())
    former = disk.open("/t-0/00000000000000000010.snapshot", read_only=True)
    before = former.read_at(0, 10_000)
    write_snapshot(disk, "/t-0", 10, ProducerStates())
    assert former.read_at(0, 10_000) == before
    assert len(read_file(disk, "/t-0/00000000000000000010.snapshot")) == 10


def test_snapshots_outside_of_the_limits_are_removed(disk: MemoryDisk) -> None:
    for offset in (10, 20, 30, 40):
        write_snapshot(disk, "/t-0", offset, ProducerStates())
    disk.open("/t-0/00000000000000000005.log", create=True)
    remove_snapshots(disk, "/t-0", below=20, above=30)
    assert snapshot_offsets_in(list(disk.list_directory("/t-0"))) == [20, 30]
    assert disk.exists("/t-0/00000000000000000005.log")


def test_other_names_are_no_snapshots() -> None:
    names = ["00000000000000000007.snapshot", "7.snapshot", "00000000000000000007.snapshot.tmp", "x.snapshot"]
    assert snapshot_offsets_in(names) == [7]
