"""Checks of a cluster's brokers and topics, over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ottla.cli.client_flags import given_security
from ottla.cli.doctor.broker import CUT_OFF_HINT
from ottla.cli.doctor.findings import Finding, ok, problem, warning
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.address import Address
from ottla.client.wire.broker_standing import describe_standing
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.metadata import ClusterInfo, PartitionInfo, TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.model.counted import counted
from ottla.model.topic_settings import MIN_INSYNC_REPLICAS

AREA: Final = "cluster"
CALL_TIMEOUT_MS: Final = 3_000
NAMES_SHOWN: Final = 10
# Of topics with replicas out of sync: each is one request.
TOPICS_ASKED_MAX: Final = 50
# Leaders of one broker above its fair share.
LEADERS_RATIO_WARNING: Final = 1.5
LEADERS_COUNT_MIN: Final = 10


def cluster_findings(addresses: Mapping[int, Sequence[Address]]) -> Iterator[Finding]:
    """`addresses`: where each registered broker says that it is."""
    yield from _reachability(addresses)
    bootstrap = ",".join(str(address) for known in addresses.values() for address in known[:1])
    if not bootstrap:
        return
    try:
        with Cluster(bootstrap, _options()) as cluster:
            admin = Admin(cluster)
            topics = admin.list_topics()
            info = admin.describe_cluster()
            yield from topic_findings(info, topics, _min_in_sync(admin, topics))
    except ClientError as error:
        yield problem(AREA, f"no broker lists the topics: {error!s}", "see the brokers' logs")


def _options() -> ClientOptions:
    return ClientOptions(client_id="ottla-doctor", call_timeout_ms=CALL_TIMEOUT_MS, security=given_security())


def _reachability(addresses: Mapping[int, Sequence[Address]]) -> Iterator[Finding]:
    for node_id, known in sorted(addresses.items()):
        for address in known:
            try:
                with Cluster(str(address), _options()) as cluster:
                    is_fenced = node_id in describe_standing(cluster, CALL_TIMEOUT_MS).fenced_ids
            except ClientError as error:
                yield problem(
                    "address",
                    f"broker {node_id} is registered at {address}: {error!s}",
                    "start it, open its port, or correct its advertised.listeners",
                )
            else:
                yield ok("address", f"broker {node_id} answers at {address}")
                if is_fenced:
                    yield problem(AREA, f"broker {node_id} is cut off from ZooKeeper: it leads nothing", CUT_OFF_HINT)


def _min_in_sync(admin: Admin, topics: Iterable[TopicInfo]) -> dict[str, int]:
    """Of topics that lack replicas in sync."""
    lacking = [topic.name for topic in topics if any(map(_lacks, topic.partitions.values()))]
    found: dict[str, int] = {}
    for name in lacking[:TOPICS_ASKED_MAX]:
        settings = admin.describe_configs(ConfigResource(ResourceType.TOPIC, name), [MIN_INSYNC_REPLICAS.name])
        entry = settings.get(MIN_INSYNC_REPLICAS.name)
        if entry is not None and entry.value is not None and entry.value.isdecimal():
            found[name] = int(entry.value)
    return found


def _lacks(partition: PartitionInfo) -> bool:
    return len(partition.in_sync_replicas) < len(partition.replicas)


def topic_findings(info: ClusterInfo, topics: Sequence[TopicInfo], min_in_sync: Mapping[str, int]) -> Iterator[Finding]:
    """`min_in_sync`: the setting of topics that lack replicas in sync."""
    partitions = [(topic, each) for topic in topics for each in topic.partitions.values()]
    offline = [_name(topic, each) for topic, each in partitions if each.leader_id < 0]
    lacking = [_name(topic, each) for topic, each in partitions if _lacks(each) and each.leader_id >= 0]
    refusing = [
        _name(topic, each)
        for topic, each in partitions
        if each.leader_id >= 0 and len(each.in_sync_replicas) < min(min_in_sync.get(topic.name, 1), len(each.replicas))
    ]
    if offline:
        yield problem(AREA, f"without a leader: {_names(offline)}", "start the brokers that hold their replicas")
    if refusing:
        yield problem(
            AREA,
            f"below min.insync.replicas, so acks=all is refused: {_names(refusing)}",
            "start the brokers that are missing, or wait until they have caught up",
        )
    if lacking:
        yield warning(
            AREA, f"under-replicated: {_names(lacking)}", "ottla cluster status shows which broker is missing or lags"
        )
    if not offline and not lacking:
        yield ok(
            AREA,
            f"{counted(len(topics), 'topic')}, {counted(len(partitions), 'partition')}: all led, all replicas in sync",
        )
    yield from _replication(info, topics)
    yield from _leaders(info, [each for _, each in partitions if each.leader_id >= 0])


def _replication(info: ClusterInfo, topics: Sequence[TopicInfo]) -> Iterator[Finding]:
    count = len(info.brokers)
    factors = {
        topic.name: max((len(each.replicas) for each in topic.partitions.values()), default=0) for topic in topics
    }
    single = [name for name, factor in factors.items() if factor == 1]
    if single and count > 1:
        yield warning(
            AREA,
            f"topics with one replica: {_names(single)}",
            "each is away while its broker is; give new ones --replication-factor 3",
        )
    wide = [name for name, factor in factors.items() if factor > count]
    if wide:
        yield warning(
            AREA, f"topics with more replicas than there are live brokers ({count}): {_names(wide)}", "start the others"
        )


def _leaders(info: ClusterInfo, led: Sequence[PartitionInfo]) -> Iterator[Finding]:
    strayed = sum(each.leader_id != each.replicas[0] for each in led)
    if strayed:
        yield warning(
            AREA,
            f"{strayed} of {len(led)} partitions are not led by their preferred replica",
            "they return automatically (auto.leader.rebalance.enable), or at once by kafka-leader-election",
        )
    share = len(led) / max(1, len(info.brokers))
    for node_id in sorted(info.brokers):
        count = sum(each.leader_id == node_id for each in led)
        if count >= LEADERS_COUNT_MIN and count > LEADERS_RATIO_WARNING * share:
            yield warning(
                AREA,
                f"broker {node_id} leads {count} of {len(led)} partitions, {share:.0f} would be its share",
                "ottla cluster plan shows how to spread them, ottla cluster rebalance does it",
            )


def _name(topic: TopicInfo, partition: PartitionInfo) -> str:
    return f"{topic.name}-{partition.partition}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
