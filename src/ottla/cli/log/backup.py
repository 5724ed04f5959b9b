"""`ottla backup` and `ottla restore`: a consistent copy of a data directory, and a data directory of it."""

from __future__ import annotations

import os
import shlex
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import say
from ottla.model.counted import counted
from ottla.model.serve_options import DEFAULT_DATA_DIR

if TYPE_CHECKING:
    from ottla.maintenance.manifest import Manifest

# The exit status when a log was damaged: it was copied as it is.
DAMAGED: Final = 1
_PAUSE_S: Final = 0.05


@click.command(name="backup")
@click.argument("target", metavar="DIR", type=click.Path())
@click.option("--data-dir", metavar="DIR", default=DEFAULT_DATA_DIR, show_default=True, help="The broker's.")
@click.option("--link", "links", is_flag=True, help="Hard-link closed segments: fast, on one file system only.")
def backup(target: str, data_dir: str, links: bool) -> int:
    """Copy a broker's topics, records, committed offsets and settings to a new directory DIR.

    \b
    ottla backup /backups/monday --data-dir /var/lib/ottla

    The broker and its clients may run: all that was acknowledged before the backup started is in it.  DIR gets its name
    when it is whole; `ottla log verify --deep DIR` checks it, and `ottla restore DIR --data-dir NEW` makes a data
    directory of it.  The broker's own settings (server.properties) are not in it.

    The exit status is 1 when a log was damaged: it was copied as it is, and all others too.
    """
    from ottla.cli.log.copied_tree import copied_topic_ids, lost_tree_of
    from ottla.coordination.embedded.tree_copy import copy_tree
    from ottla.maintenance.backup import Backup
    from ottla.runtime.clock import SystemClock
    from ottla.runtime.posix_disk import PosixDisk
    from ottla.runtime.process import raise_open_files_limit
    from ottla.storage.directory.directory_lock import FileLock
    from ottla.storage.directory.directory_tree import TREE_FILE

    raise_open_files_limit()
    clock = SystemClock()
    disk, source, path = PosixDisk(), os.path.abspath(data_dir), os.path.abspath(target)
    # It is copied last, and without it the logs, which may take hours, are no backup.
    lost = lost_tree_of(disk, source)
    if lost is not None:
        raise lost
    copy = Backup(disk, source, path, FileLock(), links=links, pause=lambda: time.sleep(_PAUSE_S))
    began_ms = clock.now_ms()
    copy.begin()
    try:
        for partition in copy.partitions():
            copy.copy_log(partition)
        copy_tree(f"{source}/{TREE_FILE}", copy.tree_path)
        manifest = copy.finish(copied_topic_ids(copy.tree_path), began_ms, clock.now_ms())
    except BaseException:
        copy.abandon()
        raise
    say(summary(manifest, path))
    damaged = [log for log in manifest.logs if log.problem is not None]
    for log in damaged:
        say(f"problem: {log.partition}: {log.problem}", err=True)
    if damaged:
        say("hint: they were copied as they are; `ottla log repair` shows what of them is whole", err=True)
    return DAMAGED if damaged else 0


def summary(manifest: Manifest, path: str) -> str:
    began = datetime.fromtimestamp(manifest.began_ms / 1000, UTC)
    topics = {log.partition.rpartition("-")[0] for log in manifest.logs}
    return (
        f"{path}: {counted(len(topics), 'topic')} with {counted(len(manifest.logs), 'partition')}, "
        f"{manifest.size_bytes} bytes, of cluster {manifest.identity.get('cluster.id', 'without an id')}, "
        f"begun {began:%Y-%m-%dT%H:%M:%S}Z, took {(manifest.ended_ms - manifest.began_ms) / 1000:.1f} s"
    )


@click.command(name="restore")
@click.argument("backup", metavar="BACKUP", type=click.Path(exists=True, file_okay=False))
@click.option("--data-dir", required=True, metavar="DIR", help="The data directory to make: new, or empty.")
def restore(backup: str, data_dir: str) -> None:
    """Make a data directory of BACKUP, a directory that `ottla backup` made.

    \b
    ottla restore /backups/monday --data-dir /var/lib/ottla

    Each file is held against its checksum, and BACKUP stays as it is.  No broker starts on DIR before all of it is
    there; a restore that was interrupted is run again.
    """
    from ottla.maintenance.backup import restore as restored
    from ottla.runtime.posix_disk import PosixDisk
    from ottla.storage.directory.directory_lock import FileLock

    disk = PosixDisk()
    path = os.path.abspath(data_dir)
    manifest = restored(disk, os.path.abspath(backup), path, FileLock())
    # An empty directory that was there may be open to others.
    disk.close_to_others(path)
    say(
        f"{path}: restored {counted(len(manifest.logs), 'partition')}, {manifest.size_bytes} bytes",
        f"start it with: ottla serve --data-dir {shlex.quote(data_dir)}",
    )
