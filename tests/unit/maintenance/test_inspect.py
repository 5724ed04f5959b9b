from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.log.lines import batch_object
from ottla.maintenance.inspect import DumpedBatch, Finding, Severity, dump_segment, verify_log
from ottla.records.checksum import crc32c
from ottla.records.end_marker import EndMarker
from ottla.records.header import ATTRIBUTES_AT, CRC, CRC_AT, HEADER
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.aborted_transactions import AbortedTransaction, format_aborted
from tests.unit.storage.logs import CLICKS, NOW_MS, Place, append_many, batch_of

BATCH_BYTES = len(batch_of())
FIRST = "00000000000000000000"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A log of 13 batches in 3 segments, closed cleanly."""
    place = Place(tmp_path / "data", config=LogConfig(segment_bytes=5 * BATCH_BYTES, index_interval_bytes=BATCH_BYTES))
    append_many(place.log(), 13)
    place.flush()
    place.close()
    return place


def directory_of(place: Place) -> Path:
    return Path(place.path) / str(CLICKS)


def findings(place: Place, *, deep: bool = True) -> list[Finding]:
    return list(verify_log(place.disk, str(directory_of(place)), deep=deep))


def change(path: Path, position: int, value: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] = value
    path.write_bytes(content)


def test_a_log_as_it_was_written_has_no_findings(place: Place) -> None:
    assert findings(place) == []


def test_a_dump_shows_each_batch_with_its_place(place: Place) -> None:
    shown = list(dump_segment(place.disk, str(directory_of(place) / f"{FIRST}.log")))
    assert all(isinstance(item, DumpedBatch) for item in shown)
    assert [(item.position, item.header.base_offset) for item in shown if isinstance(item, DumpedBatch)] == [
        (number * BATCH_BYTES, number) for number in range(5)
    ]


def test_a_dump_ends_with_what_cut_it_short(place: Place) -> None:
    path = directory_of(place) / f"{FIRST}.log"
    path.write_bytes(path.read_bytes()[:-1])
    last = list(dump_segment(place.disk, str(path)))[-1]
    assert isinstance(last, Finding)
    assert (last.severity, last.position, last.offset) == (Severity.DAMAGE, 4 * BATCH_BYTES, 4)


def test_a_wrong_checksum_is_found_only_when_looking_deep(place: Place) -> None:
    path = directory_of(place) / f"{FIRST}.log"
    change(path, 2 * BATCH_BYTES + 100, 0)
    assert findings(place, deep=False) == []
    found = findings(place)
    assert [(finding.path, finding.position, finding.offset) for finding in found] == [(str(path), 2 * BATCH_BYTES, 2)]
    assert "checksum" in found[0].problem


def test_records_that_do_not_open_are_found_though_the_checksum_is_right(place: Place) -> None:
    path = directory_of(place) / f"{FIRST}.log"
    content = bytearray(path.read_bytes())
    batch = memoryview(content)[BATCH_BYTES : 2 * BATCH_BYTES]
    batch[61] = 0xFF
    CRC.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    path.write_bytes(content)
    assert [finding.position for finding in findings(place)] == [BATCH_BYTES]


def test_a_missing_segment_is_found(place: Place) -> None:
    for path in directory_of(place).glob("00000000000000000005.*"):
        path.unlink()
    found = findings(place)
    assert [finding.severity for finding in found] == [Severity.DAMAGE]
    assert "ends at 5" in found[0].problem


def test_every_fault_is_found_and_not_only_the_first(place: Place) -> None:
    change(directory_of(place) / f"{FIRST}.log", 100, 0)
    change(directory_of(place) / "00000000000000000005.log", 3 * BATCH_BYTES + 100, 0)
    assert [finding.offset for finding in findings(place)] == [0, 8]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (f"{FIRST}.index", b"\0\0\0\x03\0\0\0\x07", "no batch starts"),
        (f"{FIRST}.index", b"\0\0\0\x03" + BATCH_BYTES.to_bytes(4, "big"), "ends with offset 1"),
        (f"{FIRST}.index", b"\0\0\0", "not an offset index"),
        (f"{FIRST}.timeindex", (10**12).to_bytes(8, "big") + b"\0\0\0\x02", "timestamp 1000000000000"),
        (f"{FIRST}.timeindex", (10**12).to_bytes(8, "big") + b"\0\0\0\x77", "no batch ends"),
        (f"{FIRST}.timeindex", b"\0\0\0", "not a time index"),
    ],
)
def test_an_index_that_does_not_fit_the_log_is_noted(place: Place, name: str, content: bytes, problem: str) -> None:
    (directory_of(place) / name).write_bytes(content)
    found = findings(place)
    assert [finding.severity for finding in found] == [Severity.NOTE]
    assert problem in found[0].problem


def test_index_entries_behind_a_damage_are_one_note(place: Place) -> None:
    path = directory_of(place) / f"{FIRST}.log"
    change(path, 2 * BATCH_BYTES + 16, 0)  # the magic byte: what comes behind is not seen
    [index] = [each for each in findings(place) if each.severity is Severity.NOTE]
    assert (index.path, index.position, index.offset) == (str(path), 2 * BATCH_BYTES, 2)
    assert "the indexes are not checked after the damage (" in index.problem
    # A wrong entry before the damage is reported as ever.
    (directory_of(place) / f"{FIRST}.index").write_bytes(bytes([0, 0, 0, 1, 0, 0, 0, 7]))
    notes = [each.problem for each in findings(place) if each.severity is Severity.NOTE]
    assert "no batch starts at the entry's position" in notes


def test_a_directory_without_segments_is_damage(tmp_path: Path, place: Place) -> None:
    (tmp_path / "empty-0").mkdir()
    found = list(verify_log(place.disk, str(tmp_path / "empty-0"), deep=True))
    assert [finding.severity for finding in found] == [Severity.DAMAGE]


def test_damage_behind_the_flushed_end_is_a_note(place: Place) -> None:
    """A torn write, or a batch that a crash left half written: it was never acknowledged."""
    path = directory_of(place) / f"{FIRST}.log"
    change(path, 2 * BATCH_BYTES + 70, 1)
    ends = {flushed_end: list(verify(place, flushed_end)) for flushed_end in (None, 1, 2, 3)}
    damages = {end: [each for each in found if each.severity is Severity.DAMAGE] for end, found in ends.items()}
    assert [len(damages[end]) for end in (None, 1, 2, 3)] == [1, 0, 0, 1]
    [note] = [each for each in ends[2] if "after the flushed end" in each.problem]
    assert (note.offset, note.position) == (2, 2 * BATCH_BYTES)


def test_log_that_ends_before_its_flushed_end_is_damage(place: Place) -> None:
    assert verify(place, 13) == []
    [damage] = verify(place, 14)
    assert damage.severity is Severity.DAMAGE
    assert "was flushed up to offset 14" in damage.problem


def verify(place: Place, flushed_end: int | None) -> list[Finding]:
    return list(verify_log(place.disk, str(directory_of(place)), deep=True, flushed_end=flushed_end))


@pytest.fixture
def transactional(tmp_path: Path) -> Place:
    """Offsets 0 and 1 are an aborted transaction and its marker, in a closed segment."""
    place = Place(tmp_path / "data")
    log = place.log()
    batch = batch_of(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append(batch, HEADER.unpack_from(batch), NOW_MS, log.transactions.guard(7, 0, 0))
    log.append_marker(EndMarker(False, 5), 7, 1, NOW_MS, advances_epoch=True)
    log.roll(NOW_MS)
    append_many(log, 1)
    place.flush()
    place.close()
    return place


def test_a_dump_shows_what_a_marker_says(transactional: Place) -> None:
    shown = list(dump_segment(transactional.disk, str(directory_of(transactional) / f"{FIRST}.log")))
    objects = [batch_object(item) for item in shown if isinstance(item, DumpedBatch)]
    assert [(each.get("marker"), each.get("coordinator_epoch")) for each in objects] == [(None, None), ("abort", 5)]


def test_aborted_transactions_are_found_in_their_index(transactional: Place) -> None:
    assert findings(transactional) == []
    index = directory_of(transactional) / f"{FIRST}.txnindex"
    index.write_bytes(index.read_bytes() + format_aborted([AbortedTransaction(0, 9, 7, 10)]))
    (found,) = findings(transactional, deep=False)
    assert (found.severity, found.offset) == (Severity.NOTE, 9)
    index.write_bytes(b"no index")
    (found,) = findings(transactional)
    assert (found.severity, found.path) == (Severity.NOTE, str(index))


def test_an_aborted_transaction_that_is_not_in_its_index_is_damage(transactional: Place) -> None:
    index = directory_of(transactional) / f"{FIRST}.txnindex"
    index.unlink()
    assert findings(transactional, deep=False) == []
    (found,) = findings(transactional)
    assert (found.severity, found.path, found.offset) == (Severity.DAMAGE, str(index), 0)
