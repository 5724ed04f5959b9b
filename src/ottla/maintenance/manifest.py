"""`backup.json`: what a backup holds.  It is written last, so a directory without it is no whole backup."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, File, read_file
from ottla.storage.directory.directory_identity import BACKUP_MANIFEST_FILE
from ottla.storage.directory.disk_space import REFUSE_BELOW_BYTES
from ottla.storage.errors import StorageError

VERSION: Final = 1
CHUNK_BYTES: Final = 4 << 20
# Left free where a backup is made or restored: a broker on that disk makes its reserve and takes records.
ROOM_LEFT_BYTES: Final = 2 * REFUSE_BELOW_BYTES


class BackupDamaged(StorageError):
    """A backup differs from its manifest."""

    hint = "use another backup; `ottla log verify --deep DIR` shows what of this one is whole"


class BackupFile(NamedTuple):
    """`path` is relative to the backup, with at most one directory; `crc` is the CRC-32C of the whole content."""

    path: str
    size_bytes: int
    crc: int


class BackupLog(NamedTuple):
    """A partition's log: offsets [start, end), of the topic with this id.  `problem`: it was damaged when copied."""

    partition: str
    topic_id: str | None
    start: int
    end: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """`identity` is what a restored directory's meta.properties has; times are ms since the epoch."""

    identity: Mapping[str, str]
    began_ms: int
    ended_ms: int
    files: Sequence[BackupFile]
    logs: Sequence[BackupLog]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    content = {
        "version": VERSION,
        "identity": dict(manifest.identity),
        "began_ms": manifest.began_ms,
        "ended_ms": manifest.ended_ms,
        "logs": [each._asdict() for each in manifest.logs],
        "files": [list(each) for each in manifest.files],
    }
    return (json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n").encode()


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises `BackupDamaged`, also for one of another version."""
    try:
        content = json.loads(data)
        checksum = content.pop("checksum")
        if content["version"] != VERSION:
            hint = "use the version of ottla that wrote it"
            raise BackupDamaged(f"{path} has version {content['version']!r}, this program knows {VERSION}", hint=hint)
        if checksum != _checksum(content):
            raise BackupDamaged(f"{path}: the checksum is not that of its content")
        files = [_file_of(*each) for each in content["files"]]
        return Manifest(
            content["identity"],
            content["began_ms"],
            content["ended_ms"],
            files,
            [BackupLog(**each) for each in content["logs"]],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupDamaged(f"{path} is not what `ottla backup` writes: {error}") from error


def _checksum(content: Mapping[str, object]) -> int:
    return crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def _file_of(path: object, size_bytes: object, crc: object) -> BackupFile:
    """Raises `ValueError`.  A path is followed when a backup is restored: it leads nowhere else."""
    if not (isinstance(path, str) and isinstance(size_bytes, int) and isinstance(crc, int) and size_bytes >= 0):
        raise ValueError(f"{path!r} is no file of a backup")
    if path.count("/") > 1 or not all(part.strip(".") for part in path.split("/")):
        raise ValueError(f"{path!r} is no path of a backup")
    return BackupFile(path, size_bytes, crc)


def read_manifest(disk: Disk, backup: str) -> Manifest:
    """Raises `BackupDamaged` also when there is none: then it is no backup, or one that was not completed."""
    path = f"{backup}/{BACKUP_MANIFEST_FILE}"
    if not disk.exists(path):
        hint = "name a directory that `ottla backup` made; one that was interrupted is no backup"
        raise BackupDamaged(f"{backup} is no backup: it has no {BACKUP_MANIFEST_FILE}", hint=hint)
    return decode_manifest(read_file(disk, path), path)


def file_crc(file: File, size_bytes: int) -> int:
    crc = 0
    for chunk in chunks(file, size_bytes):
        crc = crc32c(chunk, crc)
    return crc


def chunks(file: File, size_bytes: int) -> Iterator[bytes]:
    """The first bytes of a file; fewer where it ends earlier."""
    done = 0
    while done < size_bytes:
        chunk = file.read_at(done, min(CHUNK_BYTES, size_bytes - done))
        if not chunk:
            return
        yield chunk
        done += len(chunk)


def damages(disk: Disk, backup: str, *, deep: bool) -> Iterator[tuple[str, str]]:
    """(path, problem) of each file that is missing or another size; `deep`: or other bytes.

    Raises `BackupDamaged` for a manifest that cannot be read, and `OSError`.
    """
    for wanted in read_manifest(disk, backup).files:
        path = f"{backup}/{wanted.path}"
        if not disk.exists(path):
            yield path, "the file is missing"
            continue
        file = disk.open(path, read_only=True)
        try:
            size_bytes = file.size_bytes()
            if size_bytes != wanted.size_bytes:
                yield path, f"it has {size_bytes} bytes, {wanted.size_bytes} were backed up"
            elif deep and file_crc(file, size_bytes) != wanted.crc:
                yield path, "its bytes are not those that were backed up"
        finally:
            file.close()
