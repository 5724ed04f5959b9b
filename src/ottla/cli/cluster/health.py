"""The health of a cluster, from the responses of its brokers and its ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.output import table
from ottla.model.counted import counted
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import NO_LEADER

if TYPE_CHECKING:
    import ssl

    from ottla.client.admin.replicas import StoredReplica
    from ottla.client.wire.metadata import ClusterInfo, PartitionInfo, TopicInfo
    from ottla.coordination.zookeeper.access import ConnectString


class BrokerHealth(NamedTuple):
    """`is_live`: registered.  `problem` says why it did not answer; then bytes and lag are not known."""

    node_id: int
    address: str | None
    rack: str | None
    is_live: bool
    leads_count: int
    replicas_count: int
    out_of_sync_count: int
    size_bytes: int | None
    lag: int | None
    problem: str | None


class PartitionHealth(NamedTuple):
    """A partition without a leader, or without some of its replicas in sync."""

    name: str
    leader_id: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_offline(self) -> bool:
        return self.leader_id < 0


class ZooKeeperHealth(NamedTuple):
    """One server of the ensemble; `problem` says why it does not show more."""

    address: str
    mode: str | None = None
    facts: Mapping[str, str] = {}
    problem: str | None = None


class ClusterHealth(NamedTuple):
    cluster_id: str | None
    brokers: Sequence[BrokerHealth]
    topics_count: int
    partitions_count: int
    not_preferred_count: int
    unhealthy: Sequence[PartitionHealth]
    zookeeper: Sequence[ZooKeeperHealth]

    @property
    def offline_count(self) -> int:
        return sum(each.is_offline for each in self.unhealthy)

    @property
    def is_well(self) -> bool:
        """Every partition is led and has all replicas in sync, and every server that was queried has answered."""
        return (
            not self.unhealthy
            and all(each.is_live and each.problem is None for each in self.brokers)
            and all(each.problem is None for each in self.zookeeper)
        )


Stored = Mapping[int, "Mapping[TopicPartition, StoredReplica] | str"]


def cluster_health(
    info: ClusterInfo,
    topics: Iterable[TopicInfo],
    stored: Stored,
    zookeeper: Sequence[ZooKeeperHealth],
    not_leading_ids: Collection[int] = (),
) -> ClusterHealth:
    """`stored`: what each live broker stores, or why it did not say.

    `not_leading_ids`: brokers that refuse to lead, even if the metadata of others names them.
    """
    topics = list(topics)
    partitions = [
        (
            TopicPartition(topic.name, each.partition),
            replace(each, leader_id=NO_LEADER) if each.leader_id in not_leading_ids else each,
        )
        for topic in topics
        for each in topic.partitions.values()
    ]
    node_ids = sorted({*info.brokers, *(node_id for _, each in partitions for node_id in each.replicas)})
    return ClusterHealth(
        info.cluster_id,
        [_broker_health(node_id, info, [each for _, each in partitions], stored.get(node_id)) for node_id in node_ids],
        len(topics),
        len(partitions),
        sum(1 for _, each in partitions if each.leader_id >= 0 and each.leader_id != each.replicas[0]),
        [
            PartitionHealth(str(name), each.leader_id, each.replicas, each.in_sync_replicas)
            for name, each in partitions
            if each.leader_id < 0 or len(each.in_sync_replicas) < len(each.replicas)
        ],
        zookeeper,
    )


def _broker_health(
    node_id: int,
    info: ClusterInfo,
    partitions: Sequence[PartitionInfo],
    stored: Mapping[TopicPartition, StoredReplica] | str | None,
) -> BrokerHealth:
    broker = info.brokers.get(node_id)
    replicas = stored.values() if isinstance(stored, Mapping) else None
    return BrokerHealth(
        node_id,
        None if broker is None else str(broker.address),
        None if broker is None else broker.rack,
        broker is not None,
        sum(each.leader_id == node_id for each in partitions),
        sum(node_id in each.replicas for each in partitions),
        sum(node_id in each.replicas and node_id not in each.in_sync_replicas for each in partitions),
        None if replicas is None else sum(replica.size_bytes for replica in replicas),
        None if replicas is None else sum(replica.lag for replica in replicas),
        stored if isinstance(stored, str) else None,
    )


def zookeeper_health(address: str, srvr: str) -> ZooKeeperHealth:
    """From a server's answer to `srvr`; empty when it did not answer."""
    if not srvr.strip():
        return ZooKeeperHealth(address, problem="it does not answer")
    facts = dict(line.split(": ", 1) for line in srvr.splitlines() if ": " in line)
    if "Mode" not in facts:
        # `srvr is not executed because it is not in the whitelist.`, or that it serves no requests.
        return ZooKeeperHealth(address, problem=srvr.strip().splitlines()[0])
    return ZooKeeperHealth(address, facts["Mode"], facts)


def health_text(health: ClusterHealth, shown_max: int) -> list[str]:
    """For people; of the partitions that are not well at most `shown_max` are listed."""
    lines = [f"cluster {health.cluster_id or '-'}", ""]
    head = ("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "NOT-IN-SYNC", "BYTES", "LAG", "STATE")
    lines += table(head, [_row(each) for each in health.brokers])
    lines += [
        "",
        f"{counted(health.topics_count, 'topic')}, {counted(health.partitions_count, 'partition')}: "
        f"{len(health.unhealthy)} under-replicated, {health.offline_count} without a leader, "
        f"{health.not_preferred_count} not led by their preferred replica",
    ]
    if health.unhealthy:
        rows = [
            (each.name, "none" if each.is_offline else each.leader_id, _ids(each.replicas), _ids(each.in_sync))
            for each in health.unhealthy[:shown_max]
        ]
        lines += ["", *table(("PARTITION", "LEADER", "REPLICAS", "IN-SYNC"), rows)]
        if len(health.unhealthy) > shown_max:
            lines.append(f"... and {len(health.unhealthy) - shown_max} more")
    for server in health.zookeeper:
        lines += ["", f"zookeeper {server.address}: {_zookeeper_text(server)}"]
    return lines


def _row(broker: BrokerHealth) -> tuple[object, ...]:
    state = "not registered" if not broker.is_live else broker.problem or "ok"
    return (*broker[:3], *broker[4:9], state)


def _zookeeper_text(server: ZooKeeperHealth) -> str:
    if server.problem is not None:
        return server.problem
    shown = ("Latency min/avg/max", "Connections", "Outstanding", "Node count")
    facts = [f"{name.lower()} {server.facts[name]}" for name in shown if name in server.facts]
    return ", ".join([str(server.mode), *facts])


def _ids(node_ids: Iterable[int]) -> str:
    return ",".join(map(str, node_ids))


def health_object(health: ClusterHealth) -> dict[str, object]:
    """For `--json`."""
    return {
        "cluster_id": health.cluster_id,
        "is_well": health.is_well,
        "brokers": [each._asdict() for each in health.brokers],
        "topics_count": health.topics_count,
        "partitions_count": health.partitions_count,
        "under_replicated_count": len(health.unhealthy),
        "offline_count": health.offline_count,
        "not_preferred_count": health.not_preferred_count,
        "under_replicated": [each._asdict() | {"is_offline": each.is_offline} for each in health.unhealthy],
        "zookeeper": [each._asdict() for each in health.zookeeper],
    }


def servers_health(
    where: ConnectString, timeout_s: float, tls: ssl.SSLContext | None = None
) -> Sequence[ZooKeeperHealth]:
    """Of each server of a ZooKeeper.  `timeout_s` is one server's: one that hangs does not hide the others."""
    from ottla.coordination.zookeeper.access import ask_zookeeper

    return [
        zookeeper_health(address, ask_zookeeper(host, port, "srvr", timeout_s=timeout_s, tls=tls))
        for (host, port), address in zip(where.servers, where.addresses, strict=True)
    ]
