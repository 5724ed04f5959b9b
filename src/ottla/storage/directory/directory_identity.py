"""The owner of a data directory, and whether the machine has restarted since it was last used.

`meta.properties` names the owner, readable by Apache Kafka's tools, with a mark of Ottla.  `boot-id` has the kernel's
id of the boot in which a broker last used the directory.
"""

from __future__ import annotations

import errno
import logging
import os
import shlex
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final
from uuid import UUID, uuid4

from ottla.model.identifiers import RESERVED_UUIDS, uuid_from_text, uuid_to_text
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.directory.directory_lock import LOCK_FILE, FileLock
from ottla.storage.directory.log_completeness import KEPT_FROM, NOT_KEPT
from ottla.storage.directory.process_places import PROCESSES_FOLDER
from ottla.storage.errors import DirectoryUnusable, ForeignDirectory
from ottla.storage.log_files import base_offsets_in, topic_partition_of

# Apache Kafka's own reader ignores names that it does not know.
FORMAT_NAME: Final = "ottla.format"
FORMAT: Final = "1"
META_VERSION: Final = "1"
# Kafka's name: created with the directory, and another one when the directory is recreated.
DIRECTORY_ID: Final = "directory.id"
# A backup's list of its content, and the mark of a directory that one is being restored into.
BACKUP_MANIFEST_FILE: Final = "backup.json"
RESTORING_FILE: Final = ".restoring"
# Files that an otherwise empty directory may hold: of an interrupted start, doctor's probe, a fresh volume, and the
# folder of its further brokers.
PROBE_FILE: Final = ".ottla-doctor"
_WITHOUT_OWNER: Final = frozenset(
    {LOCK_FILE, PROBE_FILE, f"{checkpoints.META_PROPERTIES_FILE}.tmp", "lost+found", PROCESSES_FOLDER}
)
BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
BOOT_NOTE_FILE: Final = "boot-id"
# The kernel's is 36 characters and a line end.
_BOOT_ID_BYTES_MAX: Final = 128

_log = logging.getLogger(__name__)


def is_same_boot(disk: Disk, directory: str, boot_id_path: str = BOOT_ID_PATH) -> bool:
    """Whether the note is of this boot.  Raises `OSError`.

    A broker that was only killed leaves all that it wrote with the operating system, flushed or not.  Under flush
    policy `os`, where nothing is flushed before it is acknowledged, a replica may count its log as kept only when it
    knows that.  Where the system has no such id nothing is known.
    """
    boot_id = _present_boot_id(disk, boot_id_path)
    return bool(boot_id) and boot_id == _noted(disk, directory)


def write_boot_note(disk: Disk, directory: str, boot_id_path: str = BOOT_ID_PATH) -> None:
    """For the next start, durably: call it when the result of the former note is recorded.  Raises `OSError`."""
    boot_id = _present_boot_id(disk, boot_id_path)
    if not boot_id:
        remove_boot_note(disk, directory)
    elif boot_id != _noted(disk, directory):
        replace_file(disk, f"{directory}/{BOOT_NOTE_FILE}", boot_id + b"\n")


def _noted(disk: Disk, directory: str) -> bytes:
    path = f"{directory}/{BOOT_NOTE_FILE}"
    return read_file(disk, path).strip() if disk.exists(path) else b""


def remove_boot_note(disk: Disk, directory: str) -> None:
    """The operating system has lost writes: the next start, of the same boot too, must not believe it."""
    path = f"{directory}/{BOOT_NOTE_FILE}"
    try:
        if disk.exists(path):
            disk.remove(path)
    except OSError as error:
        _log.warning("boot_note.not_removed", extra=fields(path=path, error=str(error)))


def _present_boot_id(disk: Disk, path: str) -> bytes:
    """Empty where there is none."""
    try:
        if not disk.exists(path):
            return b""
        file = disk.open(path, read_only=True)
        try:
            # The kernel reports its size as 0.
            return file.read_at(0, _BOOT_ID_BYTES_MAX).strip()
        finally:
            file.close()
    except OSError as error:
        _log.warning("boot_note.no_boot_id", extra=fields(path=path, error=str(error)))
        return b""


class Owner(Enum):
    """The owner of a directory.  LOST: logs, without a file that names their owner; OTHERS: files of no broker."""

    NONE = auto()
    OTTLA = auto()
    APACHE_KAFKA = auto()
    LOST = auto()
    OTHERS = auto()


def owner_of(disk: Disk, path: str) -> Owner:
    """Changes nothing.  Raises `DamagedCheckpoint` for a meta.properties that cannot be read, and `OSError`."""
    found = checkpoints.read_meta_properties(disk, path)
    if found is not None:
        return Owner.OTTLA if FORMAT_NAME in found else Owner.APACHE_KAFKA
    names = _strangers(disk, path)
    if not names:
        return Owner.NONE
    return Owner.LOST if any(is_log(disk, path, name) for name in names) else Owner.OTHERS


def _strangers(disk: Disk, path: str) -> list[str]:
    return [name for name in disk.list_directory(path) if name not in _WITHOUT_OWNER]


def is_log(disk: Disk, path: str, name: str) -> bool:
    """Many directories are named like topic-0; a log's holds segments."""
    if topic_partition_of(name) is None or not disk.is_directory(f"{path}/{name}"):
        return False
    names = disk.list_directory(f"{path}/{name}")
    return checkpoints.PARTITION_METADATA_FILE in names or bool(base_offsets_in(names))


def claim(disk: PosixDisk, path: str, node_id: int, lock: FileLock) -> None:
    """Create the directory if it is new, lock it, and claim it for this node; one that is refused is not changed.

    Raises `ForeignDirectory`, `DirectoryLocked`, `DirectoryUnusable`, `DamagedCheckpoint`.
    """
    try:
        disk.make_directory(path)
        check(disk, path, node_id, None)
        lock.acquire(path)
        try:
            if owner_of(disk, path) is Owner.NONE:
                disk.close_to_others(path)
            check_or_write(disk, path, node_id, None)
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        problem = f"{path or repr(path)} cannot be a data directory: {error.strerror or error}"
        raise DirectoryUnusable(problem, hint=_unusable_hint(disk, path, error)) from error


def _unusable_hint(disk: PosixDisk, path: str, error: OSError) -> str | None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room on its file system, or choose a --data-dir on another"
    parent = os.path.dirname(path.rstrip("/"))
    if error.errno == errno.ENOENT and parent and not disk.exists(parent):
        return f"{parent} does not exist: make it first (mkdir -p {shlex.quote(parent)}), or correct --data-dir"
    return None


def check(disk: Disk, path: str, node_id: int, cluster_id: str | None) -> None:
    """Raises `ForeignDirectory` for one that belongs to another owner."""
    if disk.exists(f"{path}/{RESTORING_FILE}"):
        raise ForeignDirectory(
            f"a restore into {path} was interrupted, so the directory is not whole",
            hint=f"run `ottla restore BACKUP --data-dir {path}` again: it starts over",
        )
    owner = owner_of(disk, path)
    if owner is Owner.LOST and disk.exists(f"{path}/{BACKUP_MANIFEST_FILE}"):
        raise ForeignDirectory(
            f"{path} is a backup, not a data directory",
            hint=f"`ottla restore {path} --data-dir NEW`, then serve NEW",
        )
    if owner is Owner.LOST:
        raise ForeignDirectory(
            f"{path} holds logs, and no {checkpoints.META_PROPERTIES_FILE} says whose they are",
            hint=f"restore {checkpoints.META_PROPERTIES_FILE} from a backup, or give this broker its own empty "
            "--data-dir",
        )
    if owner is Owner.OTHERS:
        raise ForeignDirectory(
            f"{path} is not a data directory, and it is not empty: it holds {_strangers(disk, path)[0]}",
            hint="choose another --data-dir: a new one, or an empty one",
        )
    if owner is not Owner.NONE:
        _check_properties(path, checkpoints.read_meta_properties(disk, path) or {}, node_id, cluster_id)


def check_or_write(disk: Disk, path: str, node_id: int, cluster_id: str | None) -> None:
    """Make sure that the directory is this node's, claiming it if it is new.

    Raises `ForeignDirectory` as `check` does.
    """
    check(disk, path, node_id, cluster_id)
    found = checkpoints.read_meta_properties(disk, path)
    if found is None:
        made = {**_properties(node_id, cluster_id), DIRECTORY_ID: _new_directory_id(), KEPT_FROM: NOT_KEPT}
        checkpoints.write_meta_properties(disk, path, made)
        return
    wanted = dict(_properties(node_id, cluster_id if cluster_id is not None else found.get("cluster.id")))
    if DIRECTORY_ID not in found:
        # Of a former version.
        wanted[DIRECTORY_ID] = _new_directory_id()
    if any(found.get(name) != value for name, value in wanted.items()):
        checkpoints.write_meta_properties(disk, path, {**found, **wanted})


def accept_stale(disk: Disk, path: str) -> None:
    """Make a claimed directory another one, durably, of which no log holds all that its broker reported."""
    found = checkpoints.read_meta_properties(disk, path) or {}
    renewed = {**found, DIRECTORY_ID: _new_directory_id(), KEPT_FROM: NOT_KEPT}
    checkpoints.write_meta_properties(disk, path, renewed)


def _new_directory_id() -> str:
    """Kafka's tools take a text with a dash in front for an option."""
    while True:
        made = uuid4()
        text = uuid_to_text(made)
        if made not in RESERVED_UUIDS and not text.startswith("-"):
            return text


def directory_id(disk: Disk, path: str) -> UUID:
    """The id of a directory that was claimed.  Raises `DamagedCheckpoint` and `OSError`."""
    text = (checkpoints.read_meta_properties(disk, path) or {}).get(DIRECTORY_ID, "")
    try:
        return uuid_from_text(text)
    except ValueError as error:
        message = f"{path}/{checkpoints.META_PROPERTIES_FILE}: {DIRECTORY_ID} is no id: {error}"
        hint = "restore the file from a backup; without the line the directory gets a new id, and counts as a new disk"
        raise checkpoints.DamagedCheckpoint(message, hint=hint) from error


def _check_properties(path: str, found: Mapping[str, str], node_id: int, cluster_id: str | None) -> None:
    if FORMAT_NAME not in found:
        raise ForeignDirectory(
            f"{path} was made by Apache Kafka",
            hint="a directory that two kinds of brokers write is lost: take its topics over with "
            f"`ottla log import {path} --data-dir NEW`, then serve NEW",
        )
    if found[FORMAT_NAME] != FORMAT:
        raise ForeignDirectory(
            f"{path} has format {found[FORMAT_NAME]}, this broker reads format {FORMAT}",
            hint="start the version of the broker that wrote it",
        )
    owner_id = found.get("node.id")
    hint = f"start it with node.id={owner_id}, or give it its own empty --data-dir"
    _refuse_other(path, "node.id", owner_id, str(node_id), hint=hint)
    if cluster_id is not None and "cluster.id" in found:
        _refuse_other(
            path,
            "cluster.id",
            found["cluster.id"],
            cluster_id,
            hint="the tree of topics was not made with these logs: restore tree.sqlite from a backup, or give this "
            "broker its own empty --data-dir",
        )


def _properties(node_id: int, cluster_id: str | None) -> Mapping[str, str]:
    properties = {"version": META_VERSION, "node.id": str(node_id), FORMAT_NAME: FORMAT}
    if cluster_id is not None:
        properties["cluster.id"] = cluster_id
    return properties


def _refuse_other(path: str, name: str, found: str | None, wanted: str, *, hint: str) -> None:
    if found != wanted:
        raise ForeignDirectory(f"{path} belongs to {name} {found}, this broker has {wanted}", hint=hint)
