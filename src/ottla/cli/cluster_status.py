"""`ottla cluster status`: brokers, leaders, replicas that lag, and ZooKeeper's health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.cluster_connection import cluster_flag, connect, zookeeper_of
from ottla.cli.exit_status import FAILED
from ottla.cli.output import say

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.log_dirs import StoredReplica
    from ottla.model.identifiers import TopicPartition

# Of one broker or one ZooKeeper: one that hangs must not hide the others.
ANSWER_WITHIN_MS: Final = 3_000
AILING_SHOWN: Final = 50


@click.command(name="status")
@cluster_flag
@click.option("--zookeeper", metavar="HOST:PORT,...", help="ZooKeeper's servers.  [default: as the brokers say]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(bootstrap: str | None, zookeeper: str | None, as_json: bool) -> int:
    """Show brokers, leaders, replicas that lag, and ZooKeeper's health.

    LAG counts the records that a broker's replicas are behind their leaders.  The exit status is 1 when a partition
    lacks its leader or a replica in sync, or when a broker or ZooKeeper does not answer.
    """
    from ottla.cli.cluster_health import cluster_health, health_object, health_text
    from ottla.cli.zookeeper_servers import servers_health
    from ottla.client.admin import Admin
    from ottla.coordination.zookeeper.connect_string import ConnectString

    with connect(bootstrap) as cluster:
        admin = Admin(cluster)
        topics = admin.list_topics()
        info = admin.describe_cluster()
        stored = {node_id: _stored(cluster, node_id) for node_id in info.brokers}
        zookeeper = zookeeper or zookeeper_of(cluster, info.brokers)
    servers = [] if zookeeper is None else servers_health(ConnectString.parse(zookeeper), ANSWER_WITHIN_MS / 1_000)
    health = cluster_health(info, topics, stored, servers)
    say(*([json.dumps(health_object(health))] if as_json else health_text(health, AILING_SHOWN)))
    return 0 if health.is_well else FAILED


def _stored(cluster: Cluster, node_id: int) -> Mapping[TopicPartition, StoredReplica] | str:
    from ottla.client.errors import ClientError
    from ottla.client.log_dirs import describe_replicas

    try:
        return describe_replicas(cluster, node_id, ANSWER_WITHIN_MS)
    except ClientError as error:
        return str(error)
