from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.records.builder import BatchBuilder
from ottla.runtime.posix_disk import PosixFile
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producers import truncated_producers as truncated_module
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.truncated_producers import truncated_producers
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import NOW_MS, Place, truncate_log

CONFIG = LogConfig(segment_bytes=10**6, index_interval_bytes=300)
SELDOM, BUSY = 5, 6


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data", config=CONFIG)


def batch(
    base_offset: int, producer_id: int, sequence: int, epoch: int = 0, *, in_transaction: bool = False
) -> bytearray:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"value")
    return builder.build(
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=in_transaction,
        is_control=sequence < 0,
    )


def fill(log: Log, *producer_ids: int) -> None:
    """One record of each producer after the other, each with its next sequence."""
    sequences = {producer_id: next_sequence_of(log, producer_id) for producer_id in producer_ids}
    run = bytearray()
    for number, producer_id in enumerate(producer_ids):
        run += batch(log.log_end_offset + number, producer_id, sequences[producer_id])
        sequences[producer_id] += 1
    log.append_run(memoryview(run), NOW_MS)


def next_sequence_of(log: Log, producer_id: int) -> int:
    entry = log.producers.entry(producer_id)
    return 0 if entry is None else entry.next_sequence


def offsets_of(log: Log, producer_id: int) -> list[int]:
    """The base offsets of the batches that are remembered."""
    entry = log.producers.entry(producer_id)
    return [] if entry is None else [known.base_offset for known in entry.window()]


def test_windows_that_lost_no_batch_to_others_are_cut_without_the_log() -> None:
    states = ProducerStates()
    for offset, (producer_id, epoch, sequence) in enumerate([(3, 1, 0), (3, 1, 1), (1, 0, 0), (1, 0, 1), (2, 0, 0)]):
        states.update(producer_id, epoch, sequence, sequence, offset, 0, NOW_MS)
    disk = MemoryDisk()
    assert truncated_producers(disk, "/none", (), states, 4, NOW_MS) is states
    assert {producer_id: len(entry.batches) for producer_id, entry in states.entries()} == {3: 2, 1: 2}
    truncated_producers(disk, "/none", (), states, 1, NOW_MS)
    assert {producer_id: len(entry.batches) for producer_id, entry in states.entries()} == {3: 1}


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each read."""
    lengths: list[int] = []
    read_at = PosixFile.read_at

    def counting(file: PosixFile, position: int, length_bytes: int) -> bytes:
        lengths.append(length_bytes)
        return read_at(file, position, length_bytes)

    monkeypatch.setattr(PosixFile, "read_at", counting)
    return lengths


def test_search_reads_no_further_than_the_last_five_batches(place: Place, bytes_read: list[int]) -> None:
    log = place.log()
    fill(log, *[BUSY] * 10_000)
    bytes_read.clear()
    truncate_log(log, 9_990)
    assert offsets_of(log, BUSY) == [9_985, 9_986, 9_987, 9_988, 9_989]
    assert sum(bytes_read) < 3 * truncated_module.BLOCK_BYTES < log.size_bytes // 2


def test_batches_of_a_producer_that_sends_seldom_are_found_far_below_the_cut(place: Place) -> None:
    log = place.log()
    for _ in range(7):
        fill(log, SELDOM, *[BUSY] * 999)
    truncate_log(log, 6_000)
    assert offsets_of(log, SELDOM) == [1_000, 2_000, 3_000, 4_000, 5_000]
    assert next_sequence_of(log, SELDOM) == 6


def test_older_batches_come_from_the_snapshot_where_the_log_does_not_have_them(place: Place) -> None:
    log = place.log()
    fill(log, *[SELDOM] * 7, *[BUSY] * 3)
    log.roll(NOW_MS)
    fill(log, SELDOM, BUSY, BUSY, SELDOM, BUSY)
    place.flush()
    log.delete_records_before(10)
    log.delete_old_segments(NOW_MS)
    place.open_directory.checkpoint()
    assert log.segments[0].base_offset >= 10
    truncate_log(log, 13)
    assert offsets_of(log, SELDOM) == [3, 4, 5, 6, 10]
    assert offsets_of(log, BUSY) == [7, 8, 9, 11, 12]
    truncate_log(log, 10)
    assert offsets_of(log, SELDOM) == [2, 3, 4, 5, 6]


def test_former_epoch_is_known_again(place: Place) -> None:
    log = place.log()
    fill(log, *[SELDOM] * 3)
    log.append_run(memoryview(batch(3, SELDOM, 0, epoch=1) + batch(4, SELDOM, 1, epoch=1)), NOW_MS)
    truncate_log(log, 4)
    assert offsets_of(log, SELDOM) == [3]
    truncate_log(log, 3)
    assert (offsets_of(log, SELDOM), next_sequence_of(log, SELDOM)) == ([0, 1, 2], 3)


def test_transaction_is_open_again_when_its_marker_was_cut(place: Place) -> None:
    log = place.log()
    run = (
        batch(0, 7, 0, in_transaction=True) + batch(1, 7, 1, in_transaction=True) + batch(2, 7, -1, in_transaction=True)
    )
    log.append_run(memoryview(run), NOW_MS)
    place.flush()
    place.close()
    log = place.reopen_log()
    truncate_log(log, 2)
    entry = log.producers.entry(7)
    assert entry is not None
    assert (entry.current_txn_first_offset, offsets_of(log, 7)) == (0, [0, 1])


def test_wrong_index_entry_costs_a_replay_and_no_batch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncated_module, "BLOCK_BYTES", 500)
    log = place.log()
    fill(log, *[SELDOM] * 7, *[BUSY] * 200)
    fill(log, SELDOM, *[BUSY] * 50)
    place.flush()
    log.roll(NOW_MS)
    place.close()
    index = Path(place.path) / "clicks-0" / f"{0:020d}.index"
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    middle = len(entries) // 2
    entries[middle] = (entries[middle][0], entries[middle][1] + 1)
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    log = place.reopen_log()
    truncate_log(log, 205)
    assert offsets_of(log, SELDOM) == [2, 3, 4, 5, 6]
    assert offsets_of(log, BUSY) == [200, 201, 202, 203, 204]
