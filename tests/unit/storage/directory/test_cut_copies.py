"""Committed records that a follower cuts from its log are copied beside it first, as far as there is room."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from ottla.records.header import HEADER
from ottla.records.record import split_batches
from ottla.runtime.disk import read_file
from ottla.runtime.offload import run_inline
from ottla.storage.directory import cut_copies
from ottla.storage.directory.directory_space import DirectorySpace
from ottla.storage.directory.disk_space import SpaceRules
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import LogBeingCut
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import CLICKS, HandClock, append, append_many, batch_of, read_all, topic_id

T = TypeVar("T")
APPENDED = 12
NAME = f"/data/clicks-0.{topic_id(0).hex}.6-12.e3-cut"


class FullDisk(MemoryDisk):
    """Has no room for the second file of a copy."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        if create and "-cut" in path and path.endswith("8.log"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create, read_only=read_only)


class Cut:
    """A log of three segments; it is also the `Offload`, which calls `meanwhile` before each work."""

    def __init__(self, disk: MemoryDisk | None = None, *, low_bytes: int = 0) -> None:
        self.disk = disk or MemoryDisk()
        self.disk.make_directory("/data")
        config = LogConfig(segment_bytes=4 * len(batch_of()))
        space = DirectorySpace(self.disk, "/data", SpaceRules(low_bytes=low_bytes))
        self.directory = LogDirectory.open(
            self.disk, "/data", clock=HandClock(), config_of=lambda _: config, space=space
        )
        self.meanwhile: Callable[[], None] = lambda: None
        if CLICKS not in self.directory.logs:
            run_inline(self.directory.create([(CLICKS, topic_id(0))]))
            self.log.start_epoch(3)
            append_many(self.log, APPENDED)

    @property
    def log(self) -> Log:
        return self.directory.logs[CLICKS]

    async def __call__(self, work: Callable[[], T]) -> T:
        self.meanwhile()
        return work()

    async def pause(self) -> None:
        return None

    def keep_and_cut(self, offset: int) -> None:
        run_inline(self.log.keep_above(offset, self))
        run_inline(self.log.truncate_to(offset, self))
        assert self.log.log_end_offset == offset

    @property
    def kept(self) -> list[str]:
        return [name for name in self.disk.list_directory("/data") if "-cut" in name]


def offsets_in(disk: MemoryDisk, directory: str) -> list[int]:
    found: list[int] = []
    for name in disk.list_directory(directory):
        batches = list(split_batches(memoryview(read_file(disk, f"{directory}/{name}"))))
        offsets = [HEADER.unpack_from(batch)[0] for batch in batches]
        assert offsets[0] == int(name.removesuffix(".log"))
        found += offsets
    return found


def test_cut_records_are_copied_and_survive_a_power_cut_after_the_cut() -> None:
    cut = Cut()
    cut.keep_and_cut(6)
    assert offsets_in(cut.disk, NAME) == list(range(6, APPENDED))
    assert read_all(cut.log) == list(range(6))
    for seed in range(10):
        assert offsets_in(cut.disk.crash(Random(seed)), NAME) == list(range(6, APPENDED))


def test_reset_below_the_first_segment_keeps_all_of_the_log() -> None:
    cut = Cut()
    run_inline(cut.log.keep_above(0, cut))
    assert offsets_in(cut.disk, f"/data/{cut.kept[0]}") == list(range(APPENDED))


def test_log_takes_nothing_while_it_is_copied() -> None:
    cut = Cut()
    refused: list[int] = []

    def try_to_append() -> None:
        with pytest.raises(LogBeingCut):
            append(cut.log, batch_of())
        refused.append(cut.log.log_end_offset)

    cut.meanwhile = try_to_append
    run_inline(cut.log.keep_above(6, cut))
    assert set(refused) == {APPENDED}
    cut.meanwhile = lambda: None
    assert append(cut.log, batch_of()) == APPENDED


def test_cut_that_is_tried_again_keeps_one_copy() -> None:
    cut = Cut()
    run_inline(cut.log.keep_above(6, cut))
    cut.keep_and_cut(6)
    assert [f"/data/{name}" for name in cut.kept] == [NAME]


@pytest.mark.parametrize("limit", ["room", "sum"])
def test_cut_is_made_without_a_copy_that_has_no_room(
    limit: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit == "sum":
        monkeypatch.setattr(cut_copies, "KEPT_BYTES_MAX", 100)
    cut = Cut(low_bytes=2**62 if limit == "room" else 0)
    with caplog.at_level(logging.WARNING):
        cut.keep_and_cut(6)
    assert not cut.kept
    assert [record.getMessage() for record in caplog.records] == ["log.cut_not_kept"]


def test_copy_that_fails_in_the_middle_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cut = Cut(FullDisk())
    with caplog.at_level(logging.WARNING):
        cut.keep_and_cut(6)
    assert not cut.kept
    assert "log.cut_not_kept" in [record.getMessage() for record in caplog.records]


class UnrenamableDisk(MemoryDisk):
    """A copy gets no lasting name."""

    def rename(self, path: str, new_path: str) -> None:
        if new_path.endswith("-cut"):
            raise OSError(errno.EIO, "Input/output error", new_path)
        super().rename(path, new_path)


def test_copy_that_cannot_be_finished_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It would count for no limit until the next start."""
    cut = Cut(UnrenamableDisk())
    with caplog.at_level(logging.WARNING):
        cut.keep_and_cut(6)
    assert not cut.kept
    assert [record.getMessage() for record in caplog.records] == ["log.cut_not_kept"]


def test_next_start_names_the_copies_and_drops_an_unfinished_one(caplog: pytest.LogCaptureFixture) -> None:
    cut = Cut()
    cut.keep_and_cut(6)
    cut.disk.make_directory(f"{NAME}.unfinished")
    cut.directory.close()
    with caplog.at_level(logging.WARNING):
        again = Cut(cut.disk)
        again.directory.housekeep(10**6)
    assert "log.cut_one_is_kept" in [record.getMessage() for record in caplog.records]
    assert again.kept == [NAME.removeprefix("/data/")]
    assert read_all(again.log) == list(range(6))
