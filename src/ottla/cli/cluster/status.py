"""`ottla cluster status`: brokers, leaders, replicas that lag, and ZooKeeper's health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.client_flags import (
    default_bootstrap,
    given_security,
    open_cluster,
    optional_bootstrap_flag,
    output_flag,
)
from ottla.cli.cluster.connection import (
    CLIENT_ID,
    given_zookeeper_tls,
    registered_brokers,
    zookeeper_of,
)
from ottla.cli.exit_status import FAILED
from ottla.cli.output import data_lines, say

if TYPE_CHECKING:
    from ottla.cli.cluster.health import ClusterHealth, ZooKeeperHealth
    from ottla.client.admin.replicas import StoredReplica
    from ottla.client.wire.broker_standing import BrokerStanding
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.errors import ClientError
    from ottla.client.wire.metadata import BrokerInfo
    from ottla.model.identifiers import TopicPartition

# Of one broker or one ZooKeeper: one that hangs must not hide the others.
ANSWER_WITHIN_MS: Final = 3_000
UNHEALTHY_SHOWN: Final = 50
CUT_OFF: Final = "cut off from ZooKeeper: it leads nothing"
HANGS_UP: Final = "closes connections without an answer: cut off from ZooKeeper?"


@click.command(name="status")
@optional_bootstrap_flag
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="ZooKeeper's servers.  Without -b its registered brokers are shown.  [default: as the brokers say]",
)
@output_flag("One object.")
def command(bootstrap: str | None, zookeeper: str | None, as_data: bool) -> int:
    """Show brokers, leaders, replicas that lag, and ZooKeeper's health.

    LAG counts the records that a broker's replicas are behind their leaders.  The exit status is 1 when a partition
    lacks its leader or a replica in sync, or when a broker or ZooKeeper does not answer.
    """
    from ottla.cli.cluster.health import cluster_health
    from ottla.client.wire.metadata import ClusterInfo
    from ottla.model.errors import OttlaError

    servers = _servers(zookeeper)
    if bootstrap is None and zookeeper is not None:
        try:
            bootstrap = registered_brokers(zookeeper, ANSWER_WITHIN_MS)
        except OttlaError as error:
            if any(each.problem is not None for each in servers):
                _show(cluster_health(ClusterInfo(), [], {}, servers), as_data=as_data)
                say("", "no broker is known: name one with --bootstrap-server", err=True)
                if error.hint is not None:
                    say(f"hint: {error.hint}", err=True)
                return FAILED
            raise
    health = _health(_answers_of(bootstrap or default_bootstrap()), servers, zookeeper)
    _show(health, as_data=as_data)
    return 0 if health.is_well else FAILED


def _servers(zookeeper: str | None) -> Sequence[ZooKeeperHealth]:
    from ottla.cli.cluster.health import servers_health
    from ottla.coordination.zookeeper.access import ConnectString

    return (
        []
        if not zookeeper
        else servers_health(ConnectString.parse(zookeeper), ANSWER_WITHIN_MS / 1_000, given_zookeeper_tls())
    )


def _show(health: ClusterHealth, *, as_data: bool) -> None:
    from ottla.cli.cluster.health import health_object, health_text

    say(*(data_lines(health_object(health)) if as_data else health_text(health, UNHEALTHY_SHOWN)))


class _Answers(NamedTuple):
    """Every broker that one of them named, and the answer of each, or why there is none."""

    brokers: Mapping[int, BrokerInfo]
    by_node: Mapping[int, BrokerStanding | ClientError]

    def problem(self, node_id: int) -> str | None:
        from ottla.client.wire.broker_standing import BrokerStanding
        from ottla.client.wire.errors import ConnectionLost

        answer = self.by_node.get(node_id)
        if isinstance(answer, ConnectionLost):
            return HANGS_UP
        if answer is None or isinstance(answer, BrokerStanding):
            return CUT_OFF if self._is_fenced(node_id) else None
        return str(answer)

    @property
    def not_leading_ids(self) -> set[int]:
        return {node_id for node_id in self.brokers if self.problem(node_id) in (CUT_OFF, HANGS_UP)}

    def _is_fenced(self, node_id: int) -> bool:
        from ottla.client.wire.broker_standing import BrokerStanding

        return any(node_id in each.fenced_ids for each in self.by_node.values() if isinstance(each, BrokerStanding))


def _answers_of(bootstrap: str) -> _Answers:
    """Each broker answers for itself: what the others know of it may be old.

    Raises `ClientError` when none answers.
    """
    from ottla.client.wire.address import parse_bootstrap
    from ottla.client.wire.broker_standing import BrokerStanding

    first = [_answer(str(address)) for address in parse_bootstrap(bootstrap)]
    brokers: dict[int, BrokerInfo] = {}
    failures: list[ClientError] = []
    for answer in first:
        if isinstance(answer, BrokerStanding):
            brokers |= answer.brokers
        else:
            failures.append(answer)
    if not brokers:
        raise failures[0]
    answers: dict[int, BrokerStanding | ClientError] = {}
    while missing := [each for each in brokers.values() if each.node_id not in answers]:
        for broker in missing:
            answers[broker.node_id] = answer = _answer(str(broker.address))
            if isinstance(answer, BrokerStanding):
                brokers = {**answer.brokers, **brokers}
    return _Answers(brokers, answers)


def _answer(address: str) -> BrokerStanding | ClientError:
    from ottla.client.wire.broker_standing import describe_standing
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.errors import ClientError
    from ottla.client.wire.options import ClientOptions

    options = ClientOptions(client_id=CLIENT_ID, connect_timeout_ms=ANSWER_WITHIN_MS, security=given_security())
    try:
        with Cluster(address, options) as cluster:
            return describe_standing(cluster, ANSWER_WITHIN_MS)
    except ClientError as error:
        return error


def _health(answers: _Answers, servers: Sequence[ZooKeeperHealth], zookeeper: str | None) -> ClusterHealth:
    from ottla.cli.cluster.health import cluster_health
    from ottla.client.admin.admin import Admin
    from ottla.client.wire.broker_standing import BrokerStanding
    from ottla.client.wire.metadata import ClusterInfo

    answered = {node_id: each for node_id, each in answers.by_node.items() if isinstance(each, BrokerStanding)}
    if not answered:
        raise next(each for each in answers.by_node.values() if not isinstance(each, BrokerStanding))
    # One that leads knows the tree as it is; what a broker knows that is cut off may be old.
    certain = [node_id for node_id in answered if answers.problem(node_id) is None]
    node_id = min(certain or answered)
    brokers = answered[node_id].brokers if certain else answers.brokers
    with open_cluster(str(answers.brokers[node_id].address), CLIENT_ID) as cluster:
        topics = Admin(cluster).list_topics()
        info = ClusterInfo(answered[node_id].cluster_id, cluster.info.controller_id, brokers)
        stored = {each: answers.problem(each) or _stored(cluster, each) for each in brokers}
        found = None if zookeeper is not None else zookeeper_of(cluster, certain or answered)
    return cluster_health(info, topics, stored, servers or _servers(found), answers.not_leading_ids)


def _stored(cluster: Cluster, node_id: int) -> Mapping[TopicPartition, StoredReplica] | str:
    from ottla.client.admin.replicas import describe_replicas
    from ottla.client.wire.errors import ClientError

    try:
        return describe_replicas(cluster, node_id, ANSWER_WITHIN_MS)
    except ClientError as error:
        return str(error)
