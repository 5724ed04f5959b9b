"""`ottla cluster adopt`: a standalone broker becomes the first one of a cluster, with its data."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.config_file import given_settings
from ottla.cli.output import say
from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.observe.events import start_logging

if TYPE_CHECKING:
    from ottla.broker.tree.adopted_directory import Adopted


@click.command(name="adopt")
@click.option("--data-dir", metavar="DIR", required=True, help="The data directory of the stopped broker.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    required=True,
    help="HOST:PORT,HOST:PORT/CHROOT, where nothing is yet.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The settings that the broker will have: zookeeper.digest and TLS to ZooKeeper.",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting by its name.")
def command(data_dir: str, zookeeper: str, config: Path | None, assignments: tuple[str, ...]) -> None:
    """Move the tree of a standalone broker, or of several processes, to a ZooKeeper.

    \b
    ottla cluster adopt --data-dir /var/lib/ottla --zookeeper z1:2181,z2:2181,z3:2181/ottla

    Topics, their ids and settings, users, ACLs and committed offsets stay as they are: the records are not touched.
    With zookeeper.digest the nodes belong to it from the start.  Afterwards the directory is started with --zookeeper
    only.  An interrupted move is repeated with the same command.
    """
    start_logging("WARNING")
    settings = given_settings(assignments, config, zookeeper=zookeeper)
    if not os.path.isdir(data_dir):
        raise OttlaError(f"{data_dir} is not a directory", hint="name the broker's data directory (--data-dir)")

    from ottla.broker.tree.adopted_directory import adopt_directory
    from ottla.runtime.event_loop import run

    adopted = run(adopt_directory(settings, os.path.abspath(data_dir)))
    if adopted.nodes_count is None:
        say(f"{data_dir} was moved before: cluster {adopted.cluster_id}")
    else:
        say(f"cluster {adopted.cluster_id}: {counted(adopted.nodes_count, 'node')} of the tree moved and read back")
    commands = [_start_command(adopted, index, data_dir, zookeeper, config) for index in range(len(adopted.brokers))]
    if len(commands) == 1:
        say(f"start it now with: {commands[0]}")
        return
    say("start each broker now; further listeners, and the addresses of other servers, are its own, too:")
    say(*(f"    {each}" for each in commands))


def _start_command(adopted: Adopted, index: int, data_dir: str, zookeeper: str, config: Path | None) -> str:
    broker = adopted.brokers[index]
    words = ["ottla", "serve", "--data-dir", data_dir if index == 0 else broker.path, "--zookeeper", zookeeper]
    words += [] if config is None else ["--config", str(config)]
    if broker.ports:
        words += ["--listen", f"127.0.0.1:{broker.ports[0]}"]
    return shlex.join(words)
