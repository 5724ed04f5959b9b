"""`ottla cluster up`: several brokers on this machine, in one command."""

from __future__ import annotations

import os
import shlex
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import assignments
from ottla.cli.cluster.local_cluster import claimed_local_cluster, planned
from ottla.cli.config_file import given_settings
from ottla.cli.output import say
from ottla.client.wire.destination.local_cluster import (
    DEFAULT_DATA_DIR,
    SECURITY_FOLDER,
    read_local_cluster,
    write_local_cluster,
)
from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.model.listener import PORT_MAX
from ottla.observe.events import start_logging

if TYPE_CHECKING:
    from ottla.runtime.interrupts import Interrupts
    from ottla.testing.broker import RunningBroker
    from ottla.testing.cluster import RunningCluster
    from ottla.testing.cluster_security import ClusterSecurity

LOOK_EVERY_S: Final = 0.2
LAST_LINES: Final = 5
# Kafka's own defaults are for one broker; a topic of a cluster should survive the loss of one.
REPLICAS_MAX: Final = 3


@click.command(name="up")
@click.option(
    "--brokers",
    "brokers_count",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Count of brokers.  [default: as many as there were, at first 3]",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    metavar="DIR",
    help="Directory of all data and logs.",
)
@click.option(
    "--port",
    type=click.IntRange(0, PORT_MAX),
    metavar="PORT",
    help="The first broker's port, the others follow; 0 for free ones.  [default: as before, at first 9092]",
)
@click.option(
    "--zookeeper",
    "has_zookeeper",
    is_flag=True,
    help="Coordinate the brokers by a ZooKeeper, as on several machines: it needs Java.  Kept.",
)
@click.option(
    "--zookeeper-port",
    type=click.IntRange(0, PORT_MAX),
    metavar="PORT",
    help="ZooKeeper's port; 0 for a free one.  [default: as before, at first 2181]",
)
@click.option(
    "--rack", "racks", multiple=True, metavar="RACK", help="A broker's rack, in the order of their ids.  Kept."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of all brokers, as for `ottla serve`.  Kept; `KEY=` ends it.",
)
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="TLS and logins for brokers, clients and ZooKeeper, an authorizer, and a user admin.  Kept.",
)
def command(
    brokers_count: int | None,
    data_dir: Path,
    port: int | None,
    has_zookeeper: bool,
    zookeeper_port: int | None,
    racks: tuple[str, ...],
    settings: tuple[str, ...],
    is_secure: bool,
) -> int:
    """Run several brokers on this machine until Ctrl-C; the next start finds their data, ports, racks and settings.

    \b
    ottla cluster up --brokers 3

    A process of this command coordinates them; with --zookeeper a ZooKeeper does, as it must for brokers on several
    machines.

    Topics get up to three replicas, and acks=all waits for two of them, unless settings say otherwise.  A broker that
    ends unasked is reported, with the command that starts it again; the others continue.

    With --secure there is a ZooKeeper, too; certificates, passwords and the client.properties of the user admin are
    made in DIR/security, each readable by its owner only.
    """
    from ottla.runtime.interrupts import Interrupts
    from ottla.testing.cluster import RunningCluster

    given = assignments(settings, "--set")
    plan = planned(
        read_local_cluster(data_dir),
        brokers_count,
        port,
        zookeeper_port,
        racks,
        given,
        has_zookeeper=has_zookeeper,
        is_secure=is_secure,
    )
    # A wrong setting is reported here, and not in the log of each broker.
    start_logging("warning")
    given_settings([f"{key}={value}" for key, value in plan.settings.items()], None)
    count = len(plan.ports)
    started_s = time.monotonic()
    with Interrupts() as interrupts, ExitStack() as closing:
        cluster = RunningCluster(
            count,
            data_dir,
            has_zookeeper=plan.has_zookeeper,
            settings={**_defaults(count), **plan.settings},
            racks=plan.racks,
            ports=plan.ports,
            zookeeper_port=plan.zookeeper_port or 0,
            own_group=True,
            security=_security(data_dir) if plan.is_secure else None,
        )
        # Before a ZooKeeper starts: a second one over the same data would spoil it.
        closing.enter_context(claimed_local_cluster(data_dir))
        try:
            cluster.start(interrupts.check)
            ports = tuple(broker.port for broker in cluster.brokers.values())
            zookeeper_port = cluster.zookeeper.port if plan.has_zookeeper else None
            write_local_cluster(data_dir, plan._replace(zookeeper_port=zookeeper_port, ports=ports))
            _announce(cluster, time.monotonic() - started_s)
            if plan.settings:
                say(f"settings           {', '.join(plan.settings)}")
            _watch(cluster, interrupts)
        except KeyboardInterrupt:
            pass
        finally:
            cluster.stop()
    return 0


def _security(data_dir: Path) -> ClusterSecurity:
    from ottla.testing.cluster_security import ClusterSecurity

    return ClusterSecurity(data_dir / SECURITY_FOLDER)


def _defaults(brokers_count: int) -> dict[str, str]:
    replicas_count = min(brokers_count, REPLICAS_MAX)
    return {
        "default.replication.factor": str(replicas_count),
        "min.insync.replicas": str(max(replicas_count - 1, 1)),
        "offsets.topic.replication.factor": str(replicas_count),
    }


def _announce(cluster: RunningCluster, took_s: float) -> None:
    count = len(cluster.brokers)
    say(f"{counted(count, 'broker')}, ready after {took_s:.1f} s; Ctrl-C ends all")
    say(f"bootstrap servers  {cluster.bootstrap}")
    if cluster.has_zookeeper:
        say(f"zookeeper          {cluster.zookeeper_connect}")
    if cluster.security is not None:
        say(f"log in as admin    --command-config {cluster.security.client_properties}")
    say(f"data and logs      {cluster.data_dir}{os.sep}")
    for line in how_found(cluster.bootstrap):
        say(line, err=True)


def how_found(bootstrap: str) -> list[str]:
    """What verbs without an address do in this directory, where that may surprise."""
    from ottla.client.wire.destination.destination import Given
    from ottla.client.wire.destination.found import find_destination

    try:
        found = find_destination(Given())
    except OttlaError as error:
        return [f"note: verbs need --bootstrap-server {bootstrap}: {error}"]
    if found.bootstrap == bootstrap:
        return []
    where = f"{found.bootstrap} ({found.origin})"
    return [f"note: verbs without an address connect to {where}; this cluster's is --bootstrap-server {bootstrap}"]


def _watch(cluster: RunningCluster, interrupts: Interrupts) -> None:
    """Until Ctrl-C: the tree stays without any broker, for those that are started by hand."""
    running = set(cluster.brokers)
    tree_runs = True
    name = "ZooKeeper" if cluster.has_zookeeper else "the process that coordinates them"
    while not interrupts.came:
        for node_id in sorted(running):
            broker = cluster.broker(node_id)
            if not broker.is_running:
                running.discard(node_id)
                _report(node_id, broker)
                if not running:
                    say(f"no broker is running any more; {name} runs until Ctrl-C", err=True)
        if tree_runs and not cluster.tree.is_running:
            tree_runs = False
            say(f"{name} ended; its log is {cluster.tree.log_path}", err=True)
            say("start all again: without it no partition gets a leader, and produces fail soon", err=True)
        time.sleep(LOOK_EVERY_S)


def _report(node_id: int, broker: RunningBroker) -> None:
    say(f"broker {node_id} {broker.ended_how}; its last lines:", err=True)
    for line in broker.log_lines[-LAST_LINES:]:
        say(f"    {line}", err=True)
    say("start it again by hand:", f"    {shlex.join(broker.command_line)}", err=True)
