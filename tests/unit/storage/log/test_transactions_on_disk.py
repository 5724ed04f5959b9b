"""A log's aborted transactions on disk: the files beside its segments, what removes them, and what rebuilds them."""

from __future__ import annotations

import errno
import logging
import struct
from pathlib import Path

import pytest

from ottla.records.end_marker import EndMarker
from ottla.records.header import HEADER
from ottla.storage.errors import DiskFull
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.aborted_transactions import AbortedTransaction
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import CLICKS, NOW_MS, Place, append, append_many, batch_of, truncate_log

P = 7
FIRST = f"{0:020d}.txnindex"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def produce(log: Log, producer_id: int = P) -> int:
    """The next batch of a producer, in its transaction."""
    entry = log.producers.entry(producer_id)
    epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.next_sequence)
    guard = log.transactions.guard(producer_id, epoch, sequence)
    batch = batch_of(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    return log.append(batch, HEADER.unpack_from(batch), NOW_MS, guard)


def mark(log: Log, producer_id: int = P, *, commits: bool = False) -> None:
    entry = log.producers.entry(producer_id)
    epoch = 0 if entry is None else entry.epoch + 1
    assert log.append_marker(EndMarker(commits, 3), producer_id, epoch, NOW_MS, advances_epoch=True)


def aborted_in(log: Log) -> list[AbortedTransaction]:
    return [each for segment in log.segments for each in segment.aborted()]


def path_of(place: Place, name: str = FIRST) -> Path:
    return Path(place.path) / str(CLICKS) / name


def with_aborted(place: Place) -> Log:
    """Offsets 0 and 1 of two transactions, 2 and 3 their abort and commit, in a closed segment; 4 in the next one."""
    log = place.log()
    produce(log)
    produce(log, P + 1)
    mark(log)
    mark(log, P + 1, commits=True)
    log.roll(NOW_MS)
    append(log, batch_of())
    place.flush()
    return log


FOUND = [AbortedTransaction(0, 2, P, 1)]


def test_index_of_aborted_transactions_has_the_bytes_of_apache_kafka(place: Place) -> None:
    with_aborted(place)
    assert path_of(place).read_bytes() == struct.pack(">hqqqq", 0, P, 0, 2, 1)


def test_segment_without_aborted_transactions_has_no_index_of_them(place: Place) -> None:
    log = place.log()
    produce(log)
    mark(log, commits=True)
    log.roll(NOW_MS)
    place.flush()
    assert not path_of(place).exists()


@pytest.mark.parametrize("ends", ["close", "crash"])
def test_aborted_transactions_are_there_after_a_restart(place: Place, ends: str) -> None:
    log = with_aborted(place)
    produce(log)
    mark(log)
    place.flush()
    getattr(place, ends)()
    log = place.reopen_log()
    assert aborted_in(log) == [*FOUND, AbortedTransaction(5, 6, P, 7)]


def test_damaged_index_is_rebuilt_from_the_log(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with_aborted(place)
    place.close()
    path_of(place).write_bytes(b"\xff" * 34)
    log = place.reopen_log()
    with caplog.at_level(logging.WARNING):
        run = log.read(0, 5, 10_000, whole_first_batch=True)
        assert run is not None
        assert log.aborted.in_run(run, 0, 5) == FOUND
    assert "txnindex.damaged" in caplog.text
    assert path_of(place).read_bytes() == struct.pack(">hqqqq", 0, P, 0, 2, 1)


def test_damaged_index_of_the_active_segment_is_rebuilt_at_the_start(place: Place) -> None:
    log = place.log()
    produce(log)
    mark(log)
    place.flush()
    place.close()
    path_of(place).write_bytes(path_of(place).read_bytes()[:-1])
    assert aborted_in(place.reopen_log()) == [AbortedTransaction(0, 1, P, 2)]


def test_retention_removes_the_index_with_its_segment(place: Place) -> None:
    log = with_aborted(place)
    log.delete_records_before(4)
    log.delete_old_segments(NOW_MS)
    place.open_directory.checkpoint()
    assert aborted_in(log) == []
    assert not path_of(place).exists()


def test_cut_is_in_the_file_before_the_next_start_can_read_it(place: Place) -> None:
    log = with_aborted(place)
    truncate_log(log, 3)
    assert aborted_in(log) == FOUND
    truncate_log(log, 2)
    assert (aborted_in(log), log.transactions.open) == ([], {P: 0, P + 1: 1})
    assert not path_of(place).exists()
    truncate_log(log, 0)
    place.close()
    log = place.reopen_log()
    append_many(log, 5)
    assert (aborted_in(log), log.transactions.open) == ([], {})


def test_marker_that_could_not_be_written_leaves_the_transaction_open(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk)
    log = place.log()
    produce(log)
    disk.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        mark(log)
    assert (log.transactions.open, aborted_in(log), log.log_end_offset) == ({P: 0}, [], 1)
    disk.heal()
    mark(log)
    assert (log.transactions.open, aborted_in(log)) == ({}, [AbortedTransaction(0, 1, P, 2)])


def test_search_reads_no_segment_after_the_one_that_ends_it(place: Place) -> None:
    place.config = LogConfig(segment_bytes=10_000)
    log = with_aborted(place)
    for _ in range(3):
        produce(log)
        mark(log)
        log.roll(NOW_MS)
    place.flush()
    for segment in log.segments[2:-1]:
        Path(segment.path + ".txnindex").write_bytes(b"\xff" * 34)
        segment.drop_indexes()
    run = log.read(0, 4, 10_000, whole_first_batch=True)
    assert run is not None
    assert log.aborted.in_run(run, 0, 4) == FOUND
    assert log.segments[-2]._aborted is None
    assert len(log.aborted.across(0)) == 0


def test_log_without_aborted_transactions_is_searched_once(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    run = log.read(0, 3, 10_000, whole_first_batch=True)
    assert run is not None
    assert log.aborted.in_run(run, 0, 3) == []
    assert log.aborted._has_any is False
    produce(log)
    mark(log)
    assert log.aborted.across(4) == [AbortedTransaction(3, 4, P, 5)]
