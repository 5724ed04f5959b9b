"""`ottla cluster status`: brokers, leaders, replicas that lag, and ZooKeeper's health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import DEFAULT_BOOTSTRAP, open_cluster
from ottla.cli.exit_status import FAILED
from ottla.cli.local_cluster import DEFAULT_DATA_DIR, read_local_cluster
from ottla.model.listener import parse_address
from ottla.observe.text import safe_line

if TYPE_CHECKING:
    from ottla.cli.cluster_health import ZooKeeperHealth
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.client.log_dirs import StoredReplica
    from ottla.model.identifiers import TopicPartition

# Of one broker or one ZooKeeper: one that hangs must not hide the others.
ANSWER_WITHIN_MS: Final = 3_000
AILING_SHOWN: Final = 50
ZOOKEEPER_PORT: Final = 2181
CONNECT_SETTING: Final = "zookeeper.connect"


@click.command(name="status")
@click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    metavar="HOST:PORT,...",
    help=f"Bootstrap brokers.  [default: those of ./{DEFAULT_DATA_DIR} if it is there, else {DEFAULT_BOOTSTRAP}]",
)
@click.option(
    "--zookeeper", "connect", metavar="HOST:PORT,...", help="ZooKeeper's servers.  [default: as the brokers say]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(bootstrap: str | None, connect: str | None, as_json: bool) -> int:
    """Show brokers, leaders, replicas that lag, and ZooKeeper's health.

    LAG counts the records that a broker's replicas are behind their leaders.  The exit status is 1 when a partition
    lacks its leader or a replica in sync, or when a broker or ZooKeeper does not answer.
    """
    from ottla.cli.cluster_health import cluster_health, health_object, health_text
    from ottla.client.admin import Admin

    if bootstrap is None:
        local = read_local_cluster(Path(DEFAULT_DATA_DIR))
        bootstrap = DEFAULT_BOOTSTRAP if local is None else local.bootstrap
    with open_cluster(bootstrap, "ottla-cluster") as cluster:
        admin = Admin(cluster)
        topics = admin.list_topics()
        info = admin.describe_cluster()
        stored = {node_id: _stored(cluster, node_id) for node_id in info.brokers}
        connect = connect or _connect_of(admin, info.brokers)
    zookeeper = [] if connect is None else [_asked(address) for address in connect.partition("/")[0].split(",")]
    health = cluster_health(info, topics, stored, zookeeper)
    click.echo(json.dumps(health_object(health)) if as_json else health_text(health, AILING_SHOWN))
    return 0 if health.is_well else FAILED


def _stored(cluster: Cluster, node_id: int) -> Mapping[TopicPartition, StoredReplica] | str:
    from ottla.client.errors import ClientError
    from ottla.client.log_dirs import describe_replicas

    try:
        return describe_replicas(cluster, node_id, ANSWER_WITHIN_MS)
    except ClientError as error:
        return safe_line(str(error))


def _connect_of(admin: Admin, brokers: Mapping[int, object]) -> str | None:
    """The brokers' own setting; None for a single broker, which needs no ZooKeeper."""
    from ottla.client.configs import ConfigResource, ResourceType
    from ottla.client.errors import ClientError

    for node_id in brokers:
        try:
            settings = admin.describe_configs(ConfigResource(ResourceType.BROKER, str(node_id)), [CONNECT_SETTING])
        except ClientError:
            continue
        found = settings.get(CONNECT_SETTING)
        return None if found is None else found.value
    return None


def _asked(address: str) -> ZooKeeperHealth:
    from ottla.cli.cluster_health import zookeeper_health
    from ottla.testing.four_letter_words import ask_zookeeper

    where = parse_address(address if ":" in address else f"{address}:{ZOOKEEPER_PORT}")
    answer = ask_zookeeper(where.host, where.port, "srvr", timeout_s=ANSWER_WITHIN_MS / 1_000)
    return zookeeper_health(address, "\n".join(safe_line(line) for line in answer.splitlines()))
