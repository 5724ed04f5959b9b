"""The key of a session survives the process that had it, and is for its owner only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ottla.broker.tree.zookeeper_sessions import SESSION_FILE, SessionFile
from ottla.coordination.zookeeper.access import SessionCredentials
from ottla.runtime.posix_disk import PosixDisk

KEY = SessionCredentials(0x1000ABC, b"\x00secret\xff")


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    file = SessionFile(PosixDisk(), str(tmp_path))
    assert file.read() is None
    file.write(KEY)
    file.write(KEY._replace(session_id=7))
    assert SessionFile(PosixDisk(), str(tmp_path)).read() == KEY._replace(session_id=7)
    assert [path.name for path in tmp_path.iterdir()] == [SESSION_FILE]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    SessionFile(PosixDisk(), str(tmp_path)).write(KEY)
    assert stat.S_IMODE((tmp_path / SESSION_FILE).stat().st_mode) == 0o600


def test_removed_key_is_gone(tmp_path: Path) -> None:
    file = SessionFile(PosixDisk(), str(tmp_path))
    file.remove()
    file.write(KEY)
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"session_id": 1, "password": "zz"}', '{"session_id": null}']
)
def test_damaged_file_is_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / SESSION_FILE).write_text(content)
    assert SessionFile(PosixDisk(), str(tmp_path)).read() is None


def test_rest_of_an_interrupted_write_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{SESSION_FILE}.tmp").write_text("half")
    file = SessionFile(PosixDisk(), str(tmp_path))
    file.write(KEY)
    assert file.read() == KEY


def test_disk_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    SessionFile(PosixDisk(), str(tmp_path / "missing")).write(KEY)
