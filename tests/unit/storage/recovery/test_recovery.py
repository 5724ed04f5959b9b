from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.errors import CorruptLog, OutOfOrderSequence
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.unit.storage.logs import CLICKS, Place, append, append_many, batch_of, read_all, records_in

BATCH_BYTES = len(batch_of())
SMALL = LogConfig(segment_bytes=5 * BATCH_BYTES, index_interval_bytes=BATCH_BYTES)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data", config=SMALL)


def active_path(log: Log) -> Path:
    return Path(log.segments[-1].log_path)


def content_of(place: Place) -> dict[str, bytes]:
    """All files of the log, as they are on disk."""
    directory = Path(place.path) / str(CLICKS)
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def damage(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def test_damage_of_a_flushed_batch_in_the_active_segment_is_refused_and_left_untouched(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    place.flush()
    append_many(log, 1)
    path = active_path(log)
    place.crash()
    damage(path, 2 * BATCH_BYTES + 80)
    before = path.read_bytes()

    directory = place.open()

    error = directory.failed[CLICKS]
    assert isinstance(error, CorruptLog)
    assert (error.path, error.position, error.offset) == (str(path), 2 * BATCH_BYTES, 2)
    assert error.hint is not None
    assert CLICKS not in directory.logs
    assert path.read_bytes() == before


def test_a_refused_log_is_refused_again_after_a_clean_stop(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    place.flush()
    path = active_path(log)
    place.crash()
    damage(path, 80)
    assert CLICKS in place.open().failed
    place.close()
    assert CLICKS in place.open().failed


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: damage(path, 3 * BATCH_BYTES + 80), id="wrong checksum"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[: 3 * BATCH_BYTES + 10]), id="cut inside a head"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[: 4 * BATCH_BYTES - 1]), id="cut inside a batch"),
        pytest.param(lambda path: damage(path, 3 * BATCH_BYTES + 7), id="an offset that does not follow"),
        pytest.param(lambda path: damage(path, 3 * BATCH_BYTES + 12), id="an epoch that falls"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[: 3 * BATCH_BYTES] + bytes(500)), id="zeros"),
    ],
)
def test_a_torn_tail_above_the_flushed_end_is_cut_to_the_last_whole_batch(
    place: Place, spoil: Callable[[Path], object]
) -> None:
    log = place.log()
    append_many(log, 2)
    place.flush()
    append_many(log, 2)
    path = active_path(log)
    place.crash()
    spoil(path)

    log = place.reopen_log()

    assert log.log_end_offset == log.stable_end == 3
    assert read_all(log) == [0, 1, 2]
    assert path.stat().st_size == 3 * BATCH_BYTES
    assert append(log, batch_of()) == 3
    assert read_all(log) == [0, 1, 2, 3]


def test_a_tail_that_is_cut_takes_later_segments_with_it(place: Place) -> None:
    log = place.log()
    append_many(log, 2)
    place.flush()
    append_many(log, 12)
    first = Path(log.segments[0].log_path)
    place.crash()
    damage(first, 3 * BATCH_BYTES + 80)
    log = place.reopen_log()
    assert read_all(log) == [0, 1, 2]
    assert [name for name in content_of(place) if name.endswith(".log")] == [first.name]


def test_a_missing_segment_below_the_flushed_end_is_refused(place: Place) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    last = active_path(log)
    first = Path(log.segments[0].log_path)
    place.crash()
    content = last.read_bytes()
    last.unlink()
    assert isinstance(place.open().failed[CLICKS], CorruptLog)
    place.crash()
    last.write_bytes(content)
    first.unlink()
    error = place.open().failed[CLICKS]
    assert isinstance(error, CorruptLog)
    assert "the file is missing" in str(error)


def test_opening_twice_gives_the_same_bytes(place: Place) -> None:
    log = place.log()
    append_many(log, 2)
    place.flush()
    append_many(log, 9)
    path = active_path(log)
    place.crash()
    path.write_bytes(path.read_bytes()[:-5])
    place.open()
    once = content_of(place)
    place.crash()
    place.open()
    assert content_of(place) == once


def test_indexes_are_made_again_after_an_unclean_stop(place: Place) -> None:
    log = place.log()
    append_many(log, 13)
    place.flush()
    place.close()
    clean = content_of(place)
    log = place.reopen_log()
    place.crash()
    for path in (Path(place.path) / str(CLICKS)).glob("*index"):
        path.write_bytes(b"\x07" * 24)
    log = place.reopen_log()
    assert read_all(log) == list(range(13))
    place.close()
    assert {name: content for name, content in content_of(place).items() if "index" in name} == {
        name: content for name, content in clean.items() if "index" in name
    }


def test_a_closed_segments_wrong_index_entry_is_found_when_it_is_used(place: Place) -> None:
    append_many(place.log(), 13)
    place.flush()
    place.close()
    index_path = Path(place.path) / str(CLICKS) / "00000000000000000000.index"
    good = index_path.read_bytes()
    # The entries say "batch ending at 3 lies where the batch ending at 2 does": plausible, and wrong.
    index_path.write_bytes(good[:3] + bytes([good[3] + 1]) + good[4:8])
    log = place.reopen_log()
    assert records_in(log.read(4, 13, 10, whole_first_batch=True))[0].offset == 4
    assert read_all(log) == list(range(13))
    assert index_path.read_bytes() == good


def test_a_clean_mark_counts_once(place: Place) -> None:
    append_many(place.log(), 3)
    place.flush()
    place.close()
    assert place.open().was_clean
    place.crash()
    assert not place.open().was_clean


def test_damage_after_a_clean_stop_is_refused_too(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    path = active_path(log)
    place.close()
    path.write_bytes(path.read_bytes()[: 2 * BATCH_BYTES])
    assert isinstance(place.open().failed[CLICKS], CorruptLog)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("left_bytes", [0, BATCH_BYTES, 3 * BATCH_BYTES, 4 * BATCH_BYTES, 5 * BATCH_BYTES - 7])
def test_a_closed_segment_that_lost_its_end_is_refused(place: Place, left_bytes: int, is_clean: bool) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    path = Path(log.segments[0].log_path)
    if is_clean:
        place.close()
    else:
        place.crash()
    path.write_bytes(path.read_bytes()[:left_bytes])
    before = content_of(place)
    error = place.open().failed[CLICKS]
    assert isinstance(error, CorruptLog)
    assert (error.path, error.offset) == (str(path), left_bytes // BATCH_BYTES)
    assert content_of(place) == before


def test_a_closed_segment_whose_end_is_zeros_is_refused(place: Place) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    path = Path(log.segments[1].log_path)
    place.close()
    path.write_bytes(path.read_bytes()[: 4 * BATCH_BYTES] + bytes(BATCH_BYTES))
    error = place.open().failed[CLICKS]
    assert isinstance(error, CorruptLog)
    assert (error.path, error.position, error.offset) == (str(path), 4 * BATCH_BYTES, 9)


@pytest.mark.parametrize("content", [b"", b"\x07" * 24, b"\x00" * 8, b"\xff" * 8, b"odd"])
def test_the_end_of_a_closed_segment_is_found_without_its_index(place: Place, content: bytes) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    place.close()
    (Path(place.path) / str(CLICKS) / "00000000000000000000.index").write_bytes(content)
    assert read_all(place.reopen_log()) == list(range(12))


@pytest.mark.parametrize("snapshots", ["kept", "lost", "damaged"])
def test_producers_are_remembered_after_a_crash_with_or_without_snapshots(place: Place, snapshots: str) -> None:
    log = place.log()
    for sequence in range(13):
        append(log, batch_of(producer_id=9, producer_epoch=0, base_sequence=sequence))
    append(log, batch_of(producer_id=8, producer_epoch=3, base_sequence=5))
    place.flush()
    place.crash()
    for path in (Path(place.path) / str(CLICKS)).glob("*.snapshot"):
        if snapshots == "lost":
            path.unlink()
        elif snapshots == "damaged":
            damage(path, 12)
    log = place.reopen_log()
    assert append(log, batch_of(producer_id=9, producer_epoch=0, base_sequence=8)) == 8
    assert append(log, batch_of(producer_id=8, producer_epoch=3, base_sequence=5)) == 13
    with pytest.raises(OutOfOrderSequence):
        append(log, batch_of(producer_id=9, producer_epoch=0, base_sequence=20))
    assert append(log, batch_of(producer_id=9, producer_epoch=0, base_sequence=13)) == 14


@pytest.mark.parametrize("checkpoint", ["kept", "lost", "damaged"])
def test_leader_epochs_are_known_after_a_crash_with_or_without_their_checkpoint(place: Place, checkpoint: str) -> None:
    log = place.log()
    for epoch in (0, 1, 4):
        log.start_epoch(epoch)
        append_many(log, 5)
    place.flush()
    place.crash()
    path = Path(place.path) / str(CLICKS) / "leader-epoch-checkpoint"
    if checkpoint == "lost":
        path.unlink()
    elif checkpoint == "damaged":
        path.write_bytes(b"0\n9\n")
    log = place.reopen_log()
    assert [log.epoch_of(offset) for offset in (0, 4, 5, 9, 10, 14)] == [0, 0, 1, 1, 4, 4]
    assert log.epoch_end_offset(2) == (1, 10)
    assert log.leader_epoch == 4


def test_an_epoch_whose_batches_were_cut_is_forgotten(place: Place) -> None:
    log = place.log()
    append_many(log, 2)
    place.flush()
    log.start_epoch(1)
    append_many(log, 1)
    path = active_path(log)
    place.crash()
    path.write_bytes(path.read_bytes()[:-1])
    log = place.reopen_log()
    assert (log.leader_epoch, log.epoch_of(1)) == (0, 0)


def test_a_directory_that_a_crash_left_half_created_is_removed(place: Place) -> None:
    place.log()
    place.crash()
    half = Path(place.path) / "views-3"
    half.mkdir()
    (half / "00000000000000000000.log").touch()
    directory = place.open()
    assert not directory.failed
    assert not half.exists()


def test_a_log_with_batches_and_no_topic_id_is_refused(place: Place) -> None:
    append_many(place.log(), 2)
    place.close()
    (Path(place.path) / str(CLICKS) / "partition.metadata").unlink()
    assert isinstance(place.open().failed[CLICKS], CorruptLog)


def test_offsets_below_the_log_start_are_never_given_again(place: Place) -> None:
    place.config = LogConfig(flush_policy="os")
    log = place.log()
    append_many(log, 6)
    log.delete_records_before(6)
    place.open_directory.checkpoint()
    path = active_path(log)
    place.crash()
    # What a power loss may leave under policy `os`: the checkpoint was synced, the batches were not.
    path.write_bytes(path.read_bytes()[: 2 * BATCH_BYTES])
    log = place.reopen_log()
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert append(log, batch_of()) == 6
    place.close()
    assert read_all(place.reopen_log()) == [6]


def test_a_log_that_only_stood_there_is_believed_again_after_many_clean_stops(place: Place) -> None:
    append_many(place.log(), 7)
    place.flush()
    place.close()
    before = content_of(place)
    for _ in range(2):
        log = place.reopen_log()
        assert place.open_directory.was_clean
        assert read_all(log) == list(range(7))
        place.close()
    assert content_of(place) == before


def test_indexes_of_a_log_that_was_only_recovered_are_written_at_its_clean_stop(place: Place) -> None:
    append_many(place.log(), 7)
    place.flush()
    place.crash()
    place.open()
    place.close()
    assert "00000000000000000005.index" in content_of(place)
    assert "00000000000000000007.snapshot" in content_of(place)
    assert read_all(place.reopen_log()) == list(range(7))


def test_damage_that_a_read_meets_is_reported_once(place: Place) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    path = Path(log.segments[0].log_path)
    place.close()
    damage(path, 2 * BATCH_BYTES + 7)
    directory = place.open()
    told = place.damaged_logs
    log = directory.logs[CLICKS]
    for _ in range(2):
        with pytest.raises(CorruptLog):
            log.read(2, 12, 10, whole_first_batch=True)
    assert told == [log]
    assert directory.is_usable(CLICKS)
    log.distrust()
    log.mark_distrusted()
    assert not directory.is_usable(CLICKS)


@pytest.mark.parametrize("is_clean", [True, False])
def test_distrusted_log_is_read_whole_at_the_next_start_and_refused(place: Place, is_clean: bool) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    path = Path(log.segments[0].log_path)
    log.distrust()
    log.mark_distrusted()
    if is_clean:
        place.close()
    else:
        place.crash()
    # In the records: no head shows it.
    damage(path, 2 * BATCH_BYTES + 80)
    for _ in range(2):
        error = place.open().failed[CLICKS]
        assert isinstance(error, CorruptLog)
        assert (error.path, error.offset) == (str(path), 2)
        place.crash()


def test_distrusted_log_that_is_whole_is_trusted_from_then_on(place: Place) -> None:
    log = place.log()
    append_many(log, 12)
    place.flush()
    log.distrust()
    log.mark_distrusted()
    place.close()
    log = place.reopen_log()
    assert read_all(log) == list(range(12))
    assert place.open_directory.is_usable(CLICKS)
    assert "distrusted" not in content_of(place)
