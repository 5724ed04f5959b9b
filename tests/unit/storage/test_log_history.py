"""The events of a log that fails."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from ottla.observe.events import EventFormatter
from ottla.storage.errors import LogOffline
from ottla.storage.log_config import LogConfig
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import Place, append, append_many, batch_of


def test_log_that_goes_offline_logs_its_last_transitions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk, LogConfig(segment_bytes=2 * len(batch_of())))
    log = place.log()
    append_many(log, 3)
    place.flush()
    log.delete_records_before(1)
    disk.fail("write", "clicks-0/00000000000000000002.log", errno.EIO)
    with pytest.raises(LogOffline):
        append(log, batch_of())
    (record,) = [record for record in caplog.records if record.getMessage() == "log.offline"]
    assert record.levelno == logging.ERROR
    event, *history = EventFormatter().format(record).splitlines()
    assert "log.offline partition=clicks-0 " in event
    transitions = [line.split(" ms ")[1].split(" ")[0] for line in history]
    assert transitions == ["opened", "led", "rolled", "records_deleted", "failed"]
