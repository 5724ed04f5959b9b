"""Faults of the coordinator of transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from ottla.model.group_partition import partition_of
from ottla.testing.broker import RunningBroker
from tests.cluster.faults import PAUSED_S, killed
from tests.cluster.network_faults import cut
from tests.cluster.site import CLIENTS, ZOOKEEPER, broker_name
from tests.cluster.target import Fault, Target
from tests.eventually import eventually
from tests.history.clients import TOPIC
from tests.transactions_history.working_librdkafka import IDS_COUNT

TRANSACTIONS_TOPIC: Final = "__transaction_state"


def _coordinator(target: Target, transactional_id: str) -> RunningBroker:
    count = next(len(topic.partitions) for topic in target.cluster.topics() if topic.name == TRANSACTIONS_TOPIC)
    return target.cluster.broker(target.cluster.leader_of(TRANSACTIONS_TOPIC, partition_of(transactional_id, count)))


def _any_id(target: Target) -> str:
    return f"{TOPIC}-{target.random.randrange(IDS_COUNT)}"


def kill_transaction_coordinator(target: Target) -> str:
    """kill -9: what it has decided and not completed is for its successor."""
    transactional_id = _any_id(target)
    return killed(target, _coordinator(target, transactional_id), f"coordinator of {transactional_id} killed")


def pause_transaction_coordinator(target: Target) -> str:
    """SIGSTOP for longer than its session: it resumes with decisions and markers under way that are another's now."""
    transactional_id = _any_id(target)
    broker = _coordinator(target, transactional_id)
    broker.pause()
    try:
        time.sleep(PAUSED_S)
        successor = eventually(lambda: _coordinator(target, transactional_id), lambda seen: seen is not broker)
    finally:
        broker.resume()
    return f"coordinator of {transactional_id} paused: from broker {broker.node_id} to {successor.node_id}"


def transaction_coordinator_from_brokers(target: Target) -> str:
    """Clients reach it and its session lives, but no marker reaches another broker, and nothing is replicated."""
    broker = _coordinator(target, _any_id(target))
    return cut(target, broker_name(broker.node_id or 0), _others(target, broker))


def transaction_coordinator_alone(target: Target) -> str:
    broker = _coordinator(target, _any_id(target))
    return cut(target, broker_name(broker.node_id or 0), [*_others(target, broker), ZOOKEEPER, CLIENTS])


def _others(target: Target, broker: RunningBroker) -> list[str]:
    return [broker_name(node_id) for node_id in target.cluster.brokers if node_id != broker.node_id]


PLAIN_COORDINATOR_FAULTS: Final[Mapping[str, Fault]] = {
    "kill-transaction-coordinator": kill_transaction_coordinator,
    "pause-transaction-coordinator": pause_transaction_coordinator,
}
PRIVATE_COORDINATOR_FAULTS: Final[Mapping[str, Fault]] = {
    "transaction-coordinator-from-brokers": transaction_coordinator_from_brokers,
    "transaction-coordinator-alone": transaction_coordinator_alone,
}
