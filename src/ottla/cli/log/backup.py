"""`ottla backup`: a consistent copy of a data directory, beside a running broker or of a stopped one."""

from __future__ import annotations

import os
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
def command(target: str, data_dir: str, links: bool) -> int:
    """Copy a broker's topics, records, committed offsets and settings to a new directory DIR.

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
    backup = Backup(disk, source, path, FileLock(), links=links, pause=lambda: time.sleep(_PAUSE_S))
    began_ms = clock.now_ms()
    backup.begin()
    try:
        for partition in backup.partitions():
            backup.copy_log(partition)
        copy_tree(f"{source}/{TREE_FILE}", backup.tree_path)
        manifest = backup.finish(copied_topic_ids(backup.tree_path), began_ms, clock.now_ms())
    except BaseException:
        backup.abandon()
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
