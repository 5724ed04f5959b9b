"""Checks of a cluster's brokers and topics, over the wire, and of its ZooKeeper: the servers, and the nodes in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

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
from ottla.model.counted import counted, listed
from ottla.model.errors import OttlaError
from ottla.model.listener import is_loopback_host
from ottla.model.topic_settings import MIN_INSYNC_REPLICAS

if TYPE_CHECKING:
    from ottla.cli.cluster.health import ZooKeeperHealth
    from ottla.coordination.zookeeper.access import ConnectString
    from ottla.coordination.zookeeper.inspection import TreeInspection
    from ottla.model.settings import BrokerSettings


AREA: Final = "cluster"
ZOOKEEPER: Final = "zookeeper"
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
    return listed(names, NAMES_SHOWN)


ANSWER_WITHIN_S: Final = 3.0
LATENCY_MS_WARNING: Final = 50.0
# Timestamps of records and retention by time go by the brokers' clocks.
CLOCK_MS_WARNING: Final = 2_000
_PATHS_SHOWN: Final = 3
ENSEMBLE_MIN: Final = 3
_LATENCY: Final = "Latency min/avg/max"


def zookeeper_findings(settings: BrokerSettings) -> Iterator[Finding | TreeInspection]:
    """Findings, and at last what the tree has, if it could be read."""
    from ottla.cli.cluster.health import servers_health
    from ottla.coordination.zookeeper.access import ConnectString, ask_zookeeper
    from ottla.coordination.zookeeper.inspection import inspect_tree
    from ottla.coordination.zookeeper.security import zookeeper_security
    from ottla.model.broker_settings import ZOOKEEPER_CONNECT, ZOOKEEPER_SESSION_TIMEOUT_MS
    from ottla.model.security_settings import AUTHORIZER_CLASS_NAME

    connect = settings[ZOOKEEPER_CONNECT]
    assert connect is not None
    try:
        where = ConnectString.parse(connect)
        security = zookeeper_security(settings)
        tls = None if security.tls is None else security.tls.context()
    except OttlaError as error:
        yield problem(ZOOKEEPER, str(error), error.hint or "correct zookeeper.connect and zookeeper.digest")
        return
    yield from server_findings(servers_health(where, ANSWER_WITHIN_S, tls))
    confs = {
        address: ask_zookeeper(host, port, "conf", timeout_s=ANSWER_WITHIN_S, tls=tls)
        for (host, port), address in zip(where.servers, where.addresses, strict=True)
    }
    yield from timeout_findings(confs, settings[ZOOKEEPER_SESSION_TIMEOUT_MS])
    started_s = time.perf_counter()
    try:
        seen = inspect_tree(connect, security, ANSWER_WITHIN_S)
    except OttlaError as error:
        yield problem(ZOOKEEPER, f"the tree cannot be read: {error}", error.hint or "look at ZooKeeper's own log")
        return
    yield ok(ZOOKEEPER, f"the tree was read in {(time.perf_counter() - started_s) * 1_000:.0f} ms")
    has_digest, has_authorizer = security.digest is not None, bool(settings[AUTHORIZER_CLASS_NAME])
    yield from tree_findings(seen, has_digest=has_digest, has_authorizer=has_authorizer)
    yield from network_findings(where, has_tls=tls is not None, has_digest=has_digest)
    yield seen


def server_findings(servers: Sequence[ZooKeeperHealth]) -> Iterator[Finding]:
    """Each server, and whether the ensemble survives the loss of one."""
    for server in servers:
        if server.problem is not None and "whitelist" in server.problem:
            yield warning(
                ZOOKEEPER,
                f"{server.address} does not report its state: {server.problem}",
                "allow it: 4lw.commands.whitelist=srvr,conf in zoo.cfg",
            )
        elif server.problem is not None:
            yield problem(ZOOKEEPER, f"{server.address}: {server.problem}", "start it, or correct zookeeper.connect")
        else:
            version = server.facts.get("Zookeeper version", "of unknown version").partition(",")[0]
            text = f"{server.address}: {server.mode}, version {version}, {_LATENCY.lower()} ms {_latency(server)}"
            average = _latency(server).split("/")
            if len(average) == 3 and float(average[1]) > LATENCY_MS_WARNING:
                yield warning(ZOOKEEPER, text, "give its transaction log (dataLogDir) a separate disk")
            else:
                yield ok(ZOOKEEPER, text)
    if len(servers) < ENSEMBLE_MIN and not any(server.mode in ("leader", "follower") for server in servers):
        yield warning(
            ZOOKEEPER,
            f"{counted(len(servers), 'server')}: when one fails, no broker leads anything until it is back",
            "run an ensemble of three, and name all of them in zookeeper.connect",
        )


def _latency(server: ZooKeeperHealth) -> str:
    return server.facts.get(_LATENCY, "-")


def timeout_findings(confs: Mapping[str, str], session_timeout_ms: int) -> Iterator[Finding]:
    """Whether the servers grant the session time-out; `confs` are their answers to `conf`."""
    for address, conf in confs.items():
        facts = dict(line.split("=", 1) for line in conf.splitlines() if "=" in line)
        low, high = facts.get("minSessionTimeout", ""), facts.get("maxSessionTimeout", "")
        if not (low.isdecimal() and high.isdecimal()):
            continue
        if int(low) <= session_timeout_ms <= int(high):
            wanted = f"zookeeper.session.timeout.ms={session_timeout_ms}"
            yield ok(ZOOKEEPER, f"{address} grants {wanted} ({low} to {high})")
        else:
            granted = min(max(session_timeout_ms, int(low)), int(high))
            yield warning(
                ZOOKEEPER,
                f"{address} grants {granted} ms instead of zookeeper.session.timeout.ms={session_timeout_ms}",
                f"choose one from {low} to {high}, or change tickTime or the limits in zoo.cfg",
            )


def tree_findings(seen: TreeInspection, *, has_digest: bool, has_authorizer: bool = False) -> Iterator[Finding]:
    """What the tree has: the cluster, its registered brokers, and who may change it."""
    if seen.cluster_id is None:
        yield warning(
            ZOOKEEPER, "there is no cluster at this chroot yet", "the first broker makes one; is the chroot right?"
        )
        return
    nodes = ", ".join(map(str, sorted(seen.brokers))) or "none"
    yield ok(ZOOKEEPER, f"cluster {seen.cluster_id}, registered brokers: {nodes}")
    if not seen.brokers:
        yield problem(ZOOKEEPER, "no broker of the cluster is registered", "start the brokers")
    if seen.open_paths and has_digest:
        yield problem(
            ZOOKEEPER,
            f"any client may change {listed(seen.open_paths, _PATHS_SHOWN)}: they were made without zookeeper.digest",
            "close them: ottla cluster protect",
        )
    elif seen.open_paths and has_authorizer:
        yield problem(
            ZOOKEEPER,
            "any client that reaches ZooKeeper may change the users and the ACLs: the authorizer protects nothing",
            "give all brokers zookeeper.digest, and close the tree: ottla cluster protect",
        )
    elif seen.open_paths:
        yield warning(
            ZOOKEEPER,
            "any client that reaches ZooKeeper may change the tree",
            "protect its port, or give all brokers zookeeper.digest and close the tree: ottla cluster protect",
        )
    ahead = {node_id: broker.ahead_ms for node_id, broker in seen.brokers.items()}
    if len(ahead) > 1:
        apart_ms = max(ahead.values()) - min(ahead.values())
        text = f"the brokers' clocks were {apart_ms} ms apart when they registered"
        if apart_ms > CLOCK_MS_WARNING:
            worst = ", ".join(f"broker {node_id}: {ms:+} ms" for node_id, ms in sorted(ahead.items()))
            yield warning("clocks", f"{text} (against ZooKeeper's: {worst})", "run chrony or ntpd on every machine")
        else:
            yield ok("clocks", text)


def network_findings(where: ConnectString, *, has_tls: bool, has_digest: bool) -> Iterator[Finding]:
    """Whether what is sent to ZooKeeper can be read on the way."""
    if has_tls:
        yield ok(ZOOKEEPER, "TLS to the servers, host names verified")
        return
    remote = [host for host, _ in where.servers if not is_loopback_host(host)]
    if remote:
        what = "its password and the tree" if has_digest else "the tree"
        yield warning(
            ZOOKEEPER,
            f"no TLS to {', '.join(remote)}: everyone on the network reads and changes {what}",
            "set zookeeper.ssl.client.enable=true (docs/security.md)",
        )


def directory_findings(seen: TreeInspection, node_id: int, identity: Mapping[str, str]) -> Iterator[Finding]:
    """Whether a data directory with this `meta.properties` belongs to the cluster, as this broker's."""
    cluster_id = identity.get("cluster.id")
    if seen.cluster_id is not None and cluster_id is not None and cluster_id != seen.cluster_id:
        yield problem(
            "directory",
            f"it belongs to cluster {cluster_id}, and ZooKeeper has cluster {seen.cluster_id}",
            "correct zookeeper.connect, or give this broker another directory",
        )
        return
    if cluster_id is not None:
        yield ok("directory", f"it is node {node_id}'s of cluster {cluster_id}")
