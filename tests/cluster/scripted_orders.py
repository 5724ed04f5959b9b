"""Orders of faults that lost acknowledged records in other systems, step by step.

A replica that lacks some of them must not be elected.  The history would show the loss; the script also checks the
leader while only the wrong replica could be elected.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from types import MappingProxyType
from typing import Final

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.metadata import PartitionInfo
from ottla.client.wire.options import ClientOptions
from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.faults import SESSION_TIMEOUT_MS
from tests.cluster.site import CLIENTS, ZOOKEEPER, broker_name
from tests.cluster.target import Fault, Target
from tests.eventually import eventually
from tests.history.clients import TOPIC

_WRITTEN_MIN: Final = 20
# Enough for a wrong election: sessions have ended, and the second candidates have waited.
_WATCHED_S: Final = 2.5 * SESSION_TIMEOUT_MS / 1000
_REJOINED_WITHIN_S: Final = 0.6
_LOOK_EVERY_S: Final = 0.1
_ELECTED_WITHIN_S: Final = 30
_OPTIONS: Final = ClientOptions(
    client_id="script", call_timeout_ms=3_000, connect_timeout_ms=1_000, request_timeout_ms=2_000
)


def part_kill(target: Target) -> str:
    """One is down while records are written, the second loses power, the third stops when the first is back.

    The first lacks the records: it must wait for the second (Jepsen's order for NATS 2.12.1).
    """
    first, second, third = _in_some_order(target)
    network = target.site.network
    target.cluster.wait_until_replicated()
    with ExitStack() as walls:
        walls.callback(network.open_all)
        network.wall(broker_name(first), _all_but(target, first))
        _wait_until_out_of_sync(target, first, seen_by=third)
        _write(target)
        epochs = {each.partition: each.leader_epoch for each in _partitions(target.cluster.broker(third))}
        _cut_power(target, target.cluster.broker(second))
        # Before the first is back: it could fetch the missing records from the third, and lead legitimately.
        network.wall(broker_name(third), _all_but(target, third))
        stopped_count = network.open(broker_name(first))
        _must_not_lead(target, first, "lacks what was written without it", epochs)
        target.cluster.broker(second).start()
        _wait_for_leaders(target, {first, second}, seen_by=second)
        _write(target)
        stopped_count += network.open(broker_name(third))
    target.cluster.wait_until_replicated()
    return f"part-kill: {first} away, {second} cut, {third} away, {second} back; {stopped_count} packets stopped"


def last_replica_standing(target: Target) -> str:
    """They stop one by one, the last by a power cut; the first to stop comes back first, and must wait."""
    first, second, last = _in_some_order(target)
    cluster = target.cluster
    cluster.wait_until_replicated()
    cluster.broker(first).kill()
    _wait_until_out_of_sync(target, first, seen_by=last)
    _write(target)
    cluster.broker(second).kill()
    _wait_until_out_of_sync(target, second, seen_by=last)
    _cut_power(target, cluster.broker(last))
    cluster.broker(first).start()
    _must_not_lead(target, first, "went before the last records were written")
    for node_id in target.random.sample([second, last], 2):
        cluster.broker(node_id).start()
    cluster.wait_until_replicated()
    return f"last replica standing: {first}, {second}, {last} down; {first} back first"


def stale_rejoin(target: Target) -> str:
    """A follower is about to be in sync again when all go down, and comes back first, with an empty disk (KIP-903).

    Its log is empty whether or not the change that adds it to the ISR was applied.
    """
    cluster, network = target.cluster, target.site.network
    cluster.wait_until_replicated()
    leader = target.leader().node_id or 0
    follower = target.random.choice([node_id for node_id in cluster.brokers if node_id != leader])
    # Only partitions of this leader: those that the follower leads alone would be lost with its disk.
    network.wall(broker_name(follower), [broker_name(leader)])
    try:
        _wait_until_out_of_sync(target, follower, seen_by=leader, led_by=leader)
        _write(target)
    finally:
        stopped_count = network.open(broker_name(follower))
    time.sleep(target.random.uniform(0, _REJOINED_WITHIN_S))
    for broker in cluster.brokers.values():
        broker.pause()
    for broker in cluster.brokers.values():
        broker.kill()
    target.site.disks[follower].replace()
    cluster.broker(follower).start()
    _must_not_lead(target, follower, "has an empty disk")
    cluster.start()
    cluster.wait_until_replicated()
    return f"stale rejoin of {follower} with an empty disk; {stopped_count} packets stopped"


def power_cut_all_unflushed(target: Target) -> str:
    """With flush policy `os` all lose unwritten records: no replica may lead until an operator accepts the loss."""
    cluster = target.cluster
    cluster.wait_until_replicated()
    brokers = list(cluster.brokers.values())
    for broker in brokers:
        broker.pause()
    for broker in brokers:
        target.site.disks[broker.node_id or 0].cut()
    for broker in brokers:
        broker.kill()
    for broker in brokers:
        target.site.disks[broker.node_id or 0].restart()
    cluster.start()
    for broker in brokers:
        _must_not_lead(target, broker.node_id or 0, "may have lost records with its power")
    unled = [
        TopicPartition(topic.name, each.partition)
        for topic in cluster.topics()
        for each in topic.partitions.values()
        if each.leader_id < 0
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.elect_leaders(ElectionType.UNCLEAN, unled).result(_ELECTED_WITHIN_S)
    cluster.wait_until_replicated()
    return f"power cut of all without flushes; {len(unled)} partitions without a leader until an unclean election"


def _in_some_order(target: Target) -> list[int]:
    return target.random.sample(sorted(target.cluster.brokers), len(target.cluster.brokers))


def _all_but(target: Target, node_id: int) -> list[str]:
    return [*(broker_name(other) for other in target.cluster.brokers if other != node_id), ZOOKEEPER, CLIENTS]


def _cut_power(target: Target, broker: RunningBroker) -> None:
    disk = target.site.disks[broker.node_id or 0]
    broker.pause()
    disk.cut()
    broker.kill()
    disk.restart()


def _write(target: Target) -> None:
    """Wait until some more is acknowledged."""
    wanted = target.acknowledged_count() + _WRITTEN_MIN
    eventually(target.acknowledged_count, lambda count: count >= wanted, every_s=0.2)


def _partitions(broker: RunningBroker) -> Collection[PartitionInfo]:
    """From the view of this broker: one that is cut off without knowing it sees a former state."""
    with Cluster(broker.bootstrap, _OPTIONS) as cluster:
        (topic,) = Admin(cluster).describe_topics([TOPIC])
    return topic.partitions.values()


def _wait_until_out_of_sync(target: Target, node_id: int, seen_by: int, led_by: int | None = None) -> None:
    """Of every partition, or of those that `led_by` leads."""
    broker = target.cluster.broker(seen_by)
    target.cluster.wait_for(
        f"{node_id} out of sync, as {seen_by} sees it",
        lambda: sum(
            node_id in each.in_sync_replicas and led_by in (None, each.leader_id) for each in _partitions(broker)
        ),
        lambda count: count == 0,
    )


def _wait_for_leaders(target: Target, node_ids: Collection[int], seen_by: int) -> None:
    broker = target.cluster.broker(seen_by)
    target.cluster.wait_for(
        f"leaders among {node_ids}, as {seen_by} sees it",
        lambda: {each.leader_id for each in _partitions(broker)},
        lambda seen: seen <= set(node_ids),
    )


def _must_not_lead(target: Target, node_id: int, why: str, epochs: Mapping[int, int] = MappingProxyType({})) -> None:
    """Watch its own metadata for a while; its responses show that it could be elected.

    Until its metadata is current it may name itself leader in a former epoch; only epochs above `epochs` count.
    """
    answers_count = 0
    give_up_s = time.monotonic() + _WATCHED_S
    while time.monotonic() < give_up_s:
        with suppress(ClientError):
            led = [
                each.partition
                for each in _partitions(target.cluster.broker(node_id))
                if each.leader_id == node_id and each.leader_epoch > epochs.get(each.partition, -1)
            ]
            answers_count += 1
            if led:
                target.clients.problems.append(f"broker {node_id} leads {TOPIC} {led}, which {why}")
                return
        time.sleep(_LOOK_EVERY_S)
    if answers_count == 0:
        raise FaultWithoutEffect(f"broker {node_id} was not there to be elected")


SCRIPTED_ORDERS: Final[Mapping[str, Fault]] = {
    "part-kill": part_kill,
    "last-replica-standing": last_replica_standing,
    "stale-rejoin": stale_rejoin,
}
