"""Flipped bytes, cuts and runs of zeros in every kind of file, then the log is reopened.

Wrong bytes are never served.  Damage of a `.log` below the recorded flushed end refuses that log by name and leaves
its files alone; damage of anything else - indexes, snapshots, checkpoints - loses nothing at all.  Where the record of
flushed ends is damaged a log is refused, unless the stop was clean: it proves what was acknowledged.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from ottla.records.checksum import has_valid_crc
from ottla.records.header import BATCH_OVERHEAD_BYTES, LEADER_EPOCH_AT, read_header
from ottla.storage.directory import flushed_ends
from ottla.storage.errors import CorruptLog, FlushedEndUnknown, StorageError
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import at_time

from .log_model import START_MS, BatchShape, LogModel
from .log_place import DATA, SMALL_SEGMENTS, LogPlace, append, partition, producers_in, read_log
from .property_settings import examples, exhaustive, is_tried, timeout_s

LOG_NUMBER: Final = 0
OTHER_NUMBER: Final = 1
DAMAGES_COUNT = 40
pytestmark = [pytest.mark.timeout(timeout_s(DAMAGES_COUNT)), exhaustive]

Damage = Callable[[bytearray, random.Random], None]


def flip(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


def clear(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randint(1, 64))
    content[start:end] = bytes(end - start)


def shift(content: bytearray, rng: random.Random) -> None:
    """A run of bytes is replaced by bytes from another place."""
    length_bytes = rng.randint(1, max(1, len(content) // 3))
    source = rng.randrange(len(content) - length_bytes + 1)
    target = rng.randrange(len(content) - length_bytes + 1)
    content[target : target + length_bytes] = content[source : source + length_bytes]


DAMAGES: Final[dict[str, Damage]] = {"flip": flip, "cut": cut, "clear": clear, "shift": shift}


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


class Written:
    """Two logs with several segments, everything flushed, and their contents."""

    def __init__(self, *, is_clean: bool, log_start_offset: int = 0) -> None:
        place = LogPlace(MemoryDisk())
        place.create(2)
        self.models = [LogModel(), LogModel()]
        for number in range(40):
            for log_number, model in enumerate(self.models):
                _, stored = append(place.log(log_number), _shape(number))
                assert stored is not None
                model.append(stored)
            if number % 13 == 12:
                for log_number in range(2):
                    place.log(log_number).start_epoch(number)
        place.flush()
        if log_start_offset:
            for log_number, model in enumerate(self.models):
                place.log(log_number).delete_records_before(log_start_offset)
                model.log_start_offset = log_start_offset
        place.directory.checkpoint()
        if is_clean:
            place.directory.close()
        else:
            place.directory.abandon()
        self.disk = place.disk

    def paths(self, suffix: str) -> list[str]:
        return [path for path, content in self.disk.files().items() if path.endswith(suffix) and content]

    def damaged(self, path: str, damage: Damage, rng: random.Random) -> MemoryDisk | None:
        """A copy with one file damaged; None when the damage changed nothing."""
        content = bytearray(self.disk.files()[path])
        damage(content, rng)
        if content == self.disk.files()[path]:
            return None
        disk = self.disk.kill()
        file = disk.open(path)
        file.truncate(0)
        file.write_at(0, content)
        file.close()
        return disk

    def check_whole(self, place: LogPlace, log_number: int, *, start_known: bool = True) -> None:
        """The log has all appended batches (from its start on), and knows its producers."""
        model, log = self.models[log_number], place.log(log_number)
        assert log.log_end_offset == model.log_end_offset
        assert log.log_start_offset <= model.log_start_offset
        if start_known:
            assert log.log_start_offset == model.log_start_offset
        found = read_log(log, log.log_start_offset, log.log_end_offset)
        assert b"".join(stored.data for stored in found) == model.data_from(log.log_start_offset)
        assert producers_in(log) == model.producers()
        for age_ms in range(-3, 45, 7):
            at = at_time(log, START_MS + age_ms)
            model_start, model.log_start_offset = model.log_start_offset, log.log_start_offset
            assert (None if at is None else at.offset) == model.first_at_or_after(START_MS + age_ms)
            model.log_start_offset = model_start


def _shape(number: int) -> BatchShape:
    if number % 3 == 0:
        return BatchShape(2, 10 + number, START_MS + number, number)
    return BatchShape(1, 30, START_MS + number, number, number % 3, 0, number // 3)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_below_the_flushed_end_refuses_the_log_by_name_and_no_other(damage: str) -> None:
    written = Written(is_clean=False)
    model = written.models[LOG_NUMBER]
    active_path = max(path for path in written.paths(".log") if f"/{partition(LOG_NUMBER)}/" in path)
    seeds = list(filter(is_tried, range(examples(DAMAGES_COUNT))))
    refused_count = 0
    for seed in seeds:
        disk = written.damaged(active_path, DAMAGES[damage], random.Random(seed))
        if disk is None:
            continue
        before = disk.files()[active_path]
        place = LogPlace(disk)
        written.check_whole(place, OTHER_NUMBER)
        error = place.directory.failed.get(partition(LOG_NUMBER))
        if error is None:
            # Only for bytes without a checksum whose change has no effect: none are known here.
            found = read_log(place.log(LOG_NUMBER), 0, model.log_end_offset)
            assert [stored.head.crc for stored in found] == [stored.head.crc for stored in model.batches]
            assert [stored.base_offset for stored in found] == [stored.base_offset for stored in model.batches]
            continue
        refused_count += 1
        assert isinstance(error, CorruptLog)
        assert error.path == active_path
        assert str(error).startswith(active_path)
        assert error.offset <= model.log_end_offset
        assert disk.files()[active_path] == before, "a refused log is left as it is"
    assert refused_count > len(seeds) // 2


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_clean", [False, True])
def test_damage_in_old_segments_is_never_served_as_other_records(damage: str, is_clean: bool) -> None:
    # Of segments wholly below the flushed end only the ends are read at a start (`ottla log verify --deep` reads all):
    # a reader may get a damaged batch, which its checksum shows, but never another in its place, and no crash.
    written = Written(is_clean=is_clean)
    model = written.models[LOG_NUMBER]
    whole = {stored.base_offset: stored.data for stored in model.batches}
    paths = sorted(path for path in written.paths(".log") if f"/{partition(LOG_NUMBER)}/" in path)[:-1]
    for seed in filter(is_tried, range(examples(DAMAGES_COUNT))):
        rng = random.Random(seed)
        disk = written.damaged(rng.choice(paths), DAMAGES[damage], rng)
        if disk is None:
            continue
        place = LogPlace(disk)
        written.check_whole(place, OTHER_NUMBER)
        if partition(LOG_NUMBER) in place.directory.failed:
            assert isinstance(place.directory.failed[partition(LOG_NUMBER)], StorageError)
            continue
        log = place.log(LOG_NUMBER)
        for offset in range(log.log_start_offset, log.log_end_offset):
            try:
                run = log.read(offset, log.log_end_offset, 1, whole_first_batch=True)
            except StorageError:
                continue
            assert run is not None
            data = run.file.read_at(run.position, run.length_bytes)
            if _has_right_checksum(data):
                base_offset = read_header(data).base_offset
                assert base_offset <= offset
                assert _without_epoch(data) == _without_epoch(whole[base_offset])


@pytest.mark.parametrize("is_clean", [False, True])
def test_truncated_old_segment_refuses_the_log(is_clean: bool) -> None:
    written = Written(is_clean=is_clean)
    paths = sorted(path for path in written.paths(".log") if f"/{partition(LOG_NUMBER)}/" in path)[:-1]
    for seed in filter(is_tried, range(examples(DAMAGES_COUNT))):
        rng = random.Random(seed)
        path = rng.choice(paths)
        disk = written.damaged(path, cut, rng)
        assert disk is not None
        place = LogPlace(disk)
        error = place.directory.failed.get(partition(LOG_NUMBER))
        assert isinstance(error, CorruptLog)
        assert error.path == path
        written.check_whole(place, OTHER_NUMBER)


def _has_right_checksum(data: bytes) -> bool:
    return len(data) > BATCH_OVERHEAD_BYTES and has_valid_crc(memoryview(data))


def _without_epoch(data: bytes) -> bytes:
    """No checksum covers the leader epoch; a consumer uses it only to judge its metadata."""
    return data[:LEADER_EPOCH_AT] + data[LEADER_EPOCH_AT + 4 :]


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "recovery-point-offset-checkpoint"]
)
def test_damage_of_caches_loses_nothing(suffix: str, damage: str, is_clean: bool) -> None:
    written = Written(is_clean=is_clean)
    paths = written.paths(suffix)
    assert paths or (suffix.startswith("recovery-point") and not is_clean)
    for seed in filter(is_tried, range(examples(DAMAGES_COUNT // 4) if paths else 0)):
        rng = random.Random(seed)
        path = rng.choice(paths)
        disk = written.damaged(path, DAMAGES[damage], rng)
        if disk is None:
            continue
        place = LogPlace(disk)
        assert not place.directory.failed
        for log_number in (LOG_NUMBER, OTHER_NUMBER):
            written.check_whole(place, log_number)


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", ".kafka_cleanshutdown"])
def test_damage_of_the_directorys_checkpoints_loses_nothing(name: str, damage: str, is_clean: bool) -> None:
    written = Written(is_clean=is_clean, log_start_offset=17)
    path = f"{DATA}/{name}"
    if not written.disk.exists(path):
        assert name == ".kafka_cleanshutdown"
        return
    for seed in filter(is_tried, range(examples(DAMAGES_COUNT // 4))):
        disk = written.damaged(path, DAMAGES[damage], random.Random(seed))
        if disk is None:
            continue
        place = LogPlace(disk)
        assert not place.directory.failed
        for log_number in (LOG_NUMBER, OTHER_NUMBER):
            written.check_whole(place, log_number, start_known=name != "log-start-offset-checkpoint")


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "-checkpoint"])
def test_missing_caches_lose_nothing(suffix: str, is_clean: bool) -> None:
    written = Written(is_clean=is_clean)
    disk = written.disk.kill()
    for path in written.paths(suffix):
        disk.remove(path)
    place = LogPlace(disk)
    assert not place.directory.failed
    for log_number in (LOG_NUMBER, OTHER_NUMBER):
        written.check_whole(place, log_number)


def remove(content: bytearray, rng: random.Random) -> None:
    """As good as a missing file: no record is left in it."""
    content.clear()


@pytest.mark.parametrize("damage", [*DAMAGES.values(), remove])
@pytest.mark.parametrize("also_cuts_the_log", [False, True])
def test_damaged_record_of_flushed_ends_refuses_the_log_after_an_unclean_stop(
    damage: Damage, also_cuts_the_log: bool
) -> None:
    written = Written(is_clean=False)
    active_path = max(path for path in written.paths(".log") if f"/{partition(LOG_NUMBER)}/" in path)
    refused_count = 0
    for seed in range(examples(DAMAGES_COUNT // 4)):
        disk = written.damaged(f"{DATA}/flushed-ends", damage, random.Random(seed))
        if disk is None:
            continue
        if also_cuts_the_log:
            disk.open(active_path).truncate(disk.file_size_bytes(active_path) // 2)
        before = disk.files()
        place = LogPlace(disk)
        for log_number in (LOG_NUMBER, OTHER_NUMBER):
            error = place.directory.failed.get(partition(log_number))
            if error is None:
                written.check_whole(place, log_number)
                continue
            refused_count += 1
            assert isinstance(error, FlushedEndUnknown | CorruptLog)
            assert "ottla log repair" in (error.hint or "")
            assert all(disk.files()[path] == content for path, content in before.items() if path.endswith(".log"))
    assert refused_count > 0


@pytest.mark.parametrize("damage", [*DAMAGES.values(), remove])
def test_damaged_record_of_flushed_ends_loses_nothing_after_a_clean_stop(damage: Damage) -> None:
    written = Written(is_clean=True)
    for seed in filter(is_tried, range(examples(DAMAGES_COUNT // 4))):
        disk = written.damaged(f"{DATA}/flushed-ends", damage, random.Random(seed))
        if disk is None:
            continue
        disk.open(f"{DATA}/flushed-ends").sync_data()  # the damage is on the device
        place = LogPlace(disk)
        for log_number in (LOG_NUMBER, OTHER_NUMBER):
            written.check_whole(place, log_number)
        # The records were recreated: they distinguish the effects of the next crash from damage.
        after = LogPlace(disk.crash(random.Random(seed)))
        for log_number in (LOG_NUMBER, OTHER_NUMBER):
            written.check_whole(after, log_number)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_missing_segment_file_refuses_the_log(which: int) -> None:
    written = Written(is_clean=False)
    paths = sorted(path for path in written.paths(".log") if f"/{partition(LOG_NUMBER)}/" in path)
    assert len(paths) > 3
    disk = written.disk.kill()
    disk.remove(paths[which])
    place = LogPlace(disk)
    assert isinstance(place.directory.failed.get(partition(LOG_NUMBER)), CorruptLog)
    written.check_whole(place, OTHER_NUMBER)


@pytest.mark.parametrize("content", [b"", struct.pack(">qi", 1, 0), struct.pack(">qi", 2**62, 1)])
@pytest.mark.parametrize("is_clean", [False, True])
def test_retention_ignores_a_time_index_that_the_log_contradicts(content: bytes, is_clean: bool) -> None:
    written = Written(is_clean=is_clean)
    for path in written.paths(".timeindex"):
        file = written.disk.open(path)
        file.truncate(0)
        file.write_at(0, content)
    place = LogPlace(written.disk, replace(SMALL_SEGMENTS, retention_ms=3_600_000))
    log = place.log(LOG_NUMBER)
    assert log.delete_old_segments(place.clock.now_ms()) == 0
    greatest_ms = [segment.greatest_timestamp()[0] for segment in log.segments]
    heads = [stored.head for stored in written.models[LOG_NUMBER].batches]
    base_offsets = [segment.base_offset for segment in log.segments] + [log.log_end_offset]
    for base_offset, end_offset, found_ms in zip(base_offsets, base_offsets[1:], greatest_ms, strict=False):
        assert found_ms == max(head.max_timestamp_ms for head in heads if base_offset <= head.base_offset < end_offset)
