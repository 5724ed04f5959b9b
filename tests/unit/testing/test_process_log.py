"""The log of a process that runs for long stays bounded."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ottla.testing.running import LOG_BYTES_MAX, ProcessLog, former_log, retire_large_log


def test_log_that_has_grown_large_makes_room_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    line = "x" * (LOG_BYTES_MAX // 4) + "\n"
    with closing(ProcessLog(path)) as log:
        for _ in range(5):
            log.add(line)
    assert former_log(path).read_text() == line * 4
    assert path.read_text() == line


def test_small_log_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    for text in ("first\n", "second\n"):
        with closing(ProcessLog(path)) as log:
            log.add(text)
            assert path.read_text().endswith(text), "at once"
    assert path.read_text() == "first\nsecond\n"
    assert not former_log(path).exists()


def test_log_that_another_process_writes_is_retired_before_its_start(tmp_path: Path) -> None:
    path = tmp_path / "zookeeper.log"
    retire_large_log(path)
    path.write_bytes(bytes(LOG_BYTES_MAX + 1))
    retire_large_log(path)
    assert not path.exists()
    assert former_log(path).stat().st_size == LOG_BYTES_MAX + 1
