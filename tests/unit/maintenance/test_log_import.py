"""What an import leaves when the disk fails."""

from __future__ import annotations

import errno

import pytest

from ottla.maintenance.log_import import LogImport, SourceLog
from ottla.storage.log_files import FLUSHED_ENDS_FILE
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import CLICKS, topic_id


def test_logs_are_not_published_when_their_flushed_ends_cannot_be_written() -> None:
    """The broker would refuse them: they hold records, and nothing says how far they were flushed."""
    disk = MemoryDisk()
    disk.make_directory("/data")
    disk.make_directory(f"/data/{CLICKS}.importing")
    disk.faults.fail("write", error=errno.ENOSPC, path_contains=FLUSHED_ENDS_FILE)
    log = SourceLog(CLICKS, topic_id(0), "/kafka/clicks-0", 0, log_end_offset=3)
    with pytest.raises(OSError, match="No space"):
        LogImport(disk, "/data", links=False).publish([log])
    assert not disk.exists(f"/data/{CLICKS}")
