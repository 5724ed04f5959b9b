"""`ottla cluster rejoin`: a broker's stale data directory takes part again, as a replica that the others refill."""

from __future__ import annotations

import os
import shlex

import click

from ottla.cli.output import say
from ottla.model.errors import OttlaError


@click.command(name="rejoin")
@click.option("--data-dir", metavar="DIR", required=True, help="The data directory of the stopped broker.")
def command(data_dir: str) -> None:
    """Accept a data directory that its broker refuses as stale: a snapshot, a backup by other tools, a cloned disk.

    \b
    ottla cluster rejoin --data-dir /var/lib/ottla

    From then on none of its logs counts as complete.  The broker starts out of sync, fetches from the leaders what it
    lacks, and leads nothing before; only where it is the only replica it leads with what the directory has, and logs
    `log.stale_one_is_kept`.  A partition of which no other replica is complete waits for an operator's unclean
    election.  Do not accept the directories of all brokers while one of them may be complete.
    """
    if not os.path.isdir(data_dir):
        raise OttlaError(f"{data_dir} is not a directory", hint="name the broker's data directory (--data-dir)")

    from ottla.runtime.posix_disk import PosixDisk
    from ottla.storage.directory import directory_identity, directory_tree
    from ottla.storage.directory.directory_lock import FileLock
    from ottla.storage.errors import DirectoryLocked

    disk, path = PosixDisk(), os.path.abspath(data_dir)
    if directory_identity.owner_of(disk, path) is not directory_identity.Owner.OTTLA:
        raise OttlaError(f"{data_dir} is not a data directory of Ottla", hint="name a broker's data directory")
    if not directory_tree.is_shared(disk, path):
        raise OttlaError(
            f"{data_dir} belongs to a standalone broker: its tree is in it, and no other replica could refill it",
            hint="start the broker: nothing is refused there",
        )
    lock = FileLock()
    try:
        lock.acquire(path)
    except DirectoryLocked as error:
        raise DirectoryLocked(str(error), hint="stop the broker first") from None
    try:
        directory_identity.accept_stale(disk, path)
    finally:
        lock.release()
    say(f"{data_dir}: none of its logs counts as complete any more")
    node_id = directory_tree.node_id_of(disk, path)
    say(f"start broker {node_id} now: {shlex.join(['ottla', 'serve', '--data-dir', data_dir, '--zookeeper', '...'])}")
