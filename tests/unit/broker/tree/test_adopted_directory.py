"""Which data directories are not given to a ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.tree.adopted_directory import ResizeUnfinished, adopt_directory
from ottla.model.settings import BrokerSettings
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory import directory_identity
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.process_places import PROCESSES_FOLDER, RESIZE_FILE
from ottla.storage.errors import DirectoryLocked

SETTINGS = BrokerSettings.of({"zookeeper.connect": "127.0.0.1:1"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of the supervisor, in a broker's directory, with the journal of an interrupted change."""
    directory_identity.check_or_write(PosixDisk(), str(tmp_path), 1, "AAAACAAAAAAAAAAAAAAABQ")
    (tmp_path / PROCESSES_FOLDER).mkdir()
    (tmp_path / PROCESSES_FOLDER / RESIZE_FILE).touch()
    return tmp_path / PROCESSES_FOLDER


def test_unfinished_change_of_the_number_of_processes_is_not_adopted(folder: Path) -> None:
    """Its tree names other brokers than those that have the logs, which would remove them as another's."""
    with pytest.raises(ResizeUnfinished, match="logs were moved to brokers that its tree does not name") as caught:
        run(adopt_directory(SETTINGS, str(folder.parent)))
    assert caught.value.hint == (
        f"start `ottla serve --data-dir {folder.parent}` once: it finishes the change before a broker starts; "
        "stop it, and adopt again"
    )


def test_supervisor_that_changes_the_number_is_waited_for(folder: Path) -> None:
    lock = FileLock()
    lock.acquire(str(folder))
    with pytest.raises(DirectoryLocked):
        run(adopt_directory(SETTINGS, str(folder.parent)))
    lock.release()
