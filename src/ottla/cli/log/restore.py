"""`ottla restore`: a data directory from a backup."""

from __future__ import annotations

import os
import shlex

import click

from ottla.cli.output import say
from ottla.model.counted import counted


@click.command(name="restore")
@click.argument("backup", metavar="BACKUP", type=click.Path(exists=True, file_okay=False))
@click.option("--data-dir", required=True, metavar="DIR", help="The data directory to make: new, or empty.")
def command(backup: str, data_dir: str) -> None:
    """Make a data directory of BACKUP, a directory that `ottla backup` made.

    Each file is held against its checksum, and BACKUP stays as it is.  No broker starts on DIR before all of it is
    there; a restore that was interrupted is run again.
    """
    from ottla.maintenance.restore import restore
    from ottla.runtime.posix_disk import PosixDisk
    from ottla.storage.directory.directory_lock import FileLock

    disk = PosixDisk()
    path = os.path.abspath(data_dir)
    manifest = restore(disk, os.path.abspath(backup), path, FileLock())
    # An empty directory that was there may be open to others.
    disk.close_to_others(path)
    say(
        f"{path}: restored {counted(len(manifest.logs), 'partition')}, {manifest.size_bytes} bytes",
        f"start it with: ottla serve --data-dir {shlex.quote(data_dir)}",
    )
