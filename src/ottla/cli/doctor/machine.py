"""Checks of the machine: disk, limits, versions."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from statistics import median
from typing import Final

from ottla.cli.doctor.findings import Finding, ok, problem, warning
from ottla.model.errors import OttlaError
from ottla.model.limits import GIB, MIB
from ottla.records import record_bounds
from ottla.records.compression import Codec, compress, decompress
from ottla.runtime.installation import install_command
from ottla.runtime.posix_disk import PosixDisk, volume_size
from ottla.runtime.process import is_root, raise_open_files_limit
from ottla.storage.directory.directory_identity import PROBE_FILE, Owner, owner_of
from ottla.storage.directory.open_files import advice, open_files_need

FREE_BYTES_WARNING: Final = 5 * GIB
FREE_BYTES_PROBLEM: Final = 256 * MIB
SYNCS_COUNT: Final = 15
SYNC_MS_WARNING: Final = 20.0
SYNC_MS_SUSPICIOUS: Final = 0.02

_PROBE_BYTES: Final = 4096
_NETWORK_FILE_SYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph"})
_FORGETFUL_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "overlay"})
_PACKAGES: Final = ("click", "crc32c", "cramjam", "uvloop")


def disk_findings(data_dir: str) -> Iterator[Finding]:
    """The data directory, or its nearest existing ancestor."""
    there = os.path.abspath(data_dir)
    if os.path.exists(there) and not os.path.isdir(there):
        yield problem("disk", f"{there} is not a directory", "give another --data-dir")
        return
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    is_new = os.path.abspath(data_dir) != there
    above = os.path.dirname(os.path.abspath(data_dir))
    if is_new and above != there:
        # A start makes the last directory only: a path with a slip would hide the data of another.
        yield problem(
            "disk",
            f"{above} does not exist, and `ottla serve` makes no directory above its own",
            f"make it first (mkdir -p {shlex.quote(above)}), or correct --data-dir",
        )
    elif is_new:
        yield ok("disk", f"{data_dir} does not exist yet: `ottla serve` creates it in {there}")
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            "disk",
            f"{there} cannot be written by this user",
            f"run as the owner of {there}, or choose another directory",
        )
        return
    yield _free(there)
    yield _kind(there)
    if not is_new:
        if not _may_be_ours(there):
            return  # nothing is written there, and no advice is given: another check reports what it is
        yield from _permissions(there)
    yield _sync_time(there)


def _may_be_ours(path: str) -> bool:
    try:
        return owner_of(PosixDisk(), path) in (Owner.OTTLA, Owner.NONE)
    except (OSError, OttlaError):
        return False


def _free(path: str) -> Finding:
    volume = volume_size(path)
    share = 100 * volume.usable_bytes // max(1, volume.total_bytes)
    text = f"{volume.usable_bytes // MIB} MiB are free ({share} %)"
    if volume.usable_bytes < FREE_BYTES_PROBLEM:
        return problem("disk", text, "free space or lower retention: a full disk refuses produces")
    if volume.usable_bytes < FREE_BYTES_WARNING:
        return warning("disk", text, "free space or lower retention before it is full")
    return ok("disk", text)


def file_system_of(path: str, mounts: str) -> str | None:
    """The kind of the file system that holds `path`, by the text of /proc/mounts: the longest mount point wins."""
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _kind(path: str) -> Finding:
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
            kind = file_system_of(os.path.realpath(path), file.read())
    except OSError:
        kind = None
    if kind in _NETWORK_FILE_SYSTEMS:
        return warning(
            "disk", f"file system {kind}", "use a local disk: locks and flushes over a network are unreliable"
        )
    if kind in _FORGETFUL_FILE_SYSTEMS:
        return warning("disk", f"file system {kind}", "its content may be lost with the machine or container")
    return ok("disk", f"file system {kind or 'of unknown kind'}")


def _permissions(path: str) -> Iterator[Finding]:
    mode = os.stat(path).st_mode
    if mode & 0o077:
        yield warning("disk", f"{path} is accessible to other users (mode {mode & 0o777:o})", f"chmod 700 {path}")


def _sync_time(path: str) -> Finding:
    """The time of a flush of a small file: under policy `ack` a single client waits that long for each
    acknowledgement."""
    disk = PosixDisk()
    probe = f"{path}/{PROBE_FILE}"
    times_ms: list[float] = []
    try:
        file = disk.open(probe, create=True)
        try:
            for number in range(SYNCS_COUNT):
                file.write_at(number * _PROBE_BYTES, bytes(_PROBE_BYTES))
                started_s = time.perf_counter()
                file.sync_data()
                times_ms.append((time.perf_counter() - started_s) * 1000)
        finally:
            file.close()
            disk.remove(probe)
    except OSError as error:
        return problem("disk", f"a file in {path} cannot be written and flushed: {error}", "check the disk")
    middle, worst = median(times_ms), max(times_ms)
    text = f"a flush takes {middle:.2f} ms (worst of {SYNCS_COUNT}: {worst:.2f} ms)"
    if middle > SYNC_MS_WARNING:
        return warning("disk", text, "acknowledgements wait for it: a disk with a power-safe cache is faster")
    if middle < SYNC_MS_SUSPICIOUS:
        return warning("disk", text, "too fast for a disk: flushes may be ignored, and a power loss may lose records")
    return ok("disk", text)


def user_findings() -> Iterator[Finding]:
    if is_root():
        yield warning(
            "user",
            "a broker that root starts has every right on this machine",
            "run it as another user: ottla systemd-unit --user ottla",
        )


def limit_findings(data_dir: str, connections_max: int) -> Iterator[Finding]:
    """Descriptors: the broker needs one for each segment that is read, and one for each connection."""
    limit = raise_open_files_limit()
    if limit is None:
        return
    need = open_files_need(PosixDisk(), data_dir)
    needed, text = need.descriptors(connections_max), need.text(limit.now)
    if limit.now < needed:
        yield problem("limits", text, advice(needed))
    elif limit.now < 2 * needed:
        yield warning("limits", text, f"{advice(needed)} before it grows")
    else:
        yield ok("limits", text)


def version_findings() -> Iterator[Finding]:
    """Python, the important libraries, and a round trip through every codec."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield ok("versions", f"ottla {metadata.version('ottla')}, Python {version}")
    found: list[str] = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {package}")
    yield ok("versions", ", ".join(found))
    sample = b"ottla " * 1_000
    for codec in Codec:
        try:
            is_whole = decompress(codec, compress(codec, sample), len(sample)) == sample
        except OttlaError:
            is_whole = False
        if not is_whole:
            yield problem(
                "versions", f"codec {codec.name.lower()} does not work", "pip install --force-reinstall cramjam"
            )
    if record_bounds.COMPILED is None:
        yield warning(
            "versions",
            "the compiled check of records is not there, so record.validation=auto checks nothing",
            "install with a C compiler and Python's headers, or set log.record.validation",
        )
    if shutil.which("java") is None:
        yield ok("versions", f"no Java on the path: only PySpark needs one; to get it: {install_command('spark')}")
