"""Brokers are restarted one after the other under load: clients see neither an error nor a wait for a session."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from ottla.testing.broker import RunningBroker
from tests.cluster.conftest import Member
from tests.cluster.traffic import WITHIN_S, consume, make_topic, metadata
from tests.eventually import eventually

TOPIC = "orders"
# Far above what a hand-over takes, and below the time-out of the sessions: no client waits for one to end.
SESSION_TIMEOUT_MS = 30_000
DELAY_S_MAX = 15.0


class Load:
    """An idempotent producer that sends, one after another, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []
        self.delay_s_max = 0.0
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._send(number)
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(WITHIN_S)

    def _send(self, number: int) -> None:
        sent_s = time.monotonic()

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            self.delay_s_max = max(self.delay_s_max, time.monotonic() - sent_s)
            if error is None:
                self.acknowledged.append(number)
            else:
                self.errors.append(error)

        self._producer.produce(TOPIC, str(number).encode(), on_delivery=on_delivery)


def in_sync(broker: RunningBroker) -> list[int]:
    """How many replicas of each partition are in sync."""
    return [len(each.isrs) for each in metadata(broker.bootstrap, TOPIC).topics[TOPIC].partitions.values()]


def handed_over(broker: RunningBroker) -> int:
    """Partitions of all its stops."""
    lines = [line for line in broker.log_lines if " partitions.handed_over " in line]
    return sum(int(line.rpartition("partitions_count=")[2].split()[0]) for line in lines)


def test_brokers_are_restarted_one_by_one_without_an_error(member: Member) -> None:
    brokers = [member(node_id, zookeeper_session_timeout_ms=str(SESSION_TIMEOUT_MS)) for node_id in (1, 2, 3)]
    eventually(lambda: len(metadata(brokers[0].bootstrap).brokers), lambda count: count == 3)
    make_topic(brokers[0].bootstrap, TOPIC, partitions=6, replicas=3, config={"min.insync.replicas": "2"})
    load = Load(",".join(broker.bootstrap for broker in brokers))
    eventually(lambda: len(load.acknowledged) > 100)
    for broker, other in ((brokers[0], brokers[1]), (brokers[1], brokers[2]), (brokers[2], brokers[0])):
        before = handed_over(broker)
        assert broker.stop() == 0
        # It was in sync for all six, and led some.
        assert handed_over(broker) == before + 6
        sent = len(load.acknowledged)
        eventually(lambda sent=sent: len(load.acknowledged) > sent + 100)  # type: ignore[misc]
        broker.start()
        eventually(lambda other=other: in_sync(other), lambda counts: counts == [3] * 6)  # type: ignore[misc]
    load.stop()
    assert load.errors == []
    assert load.delay_s_max < DELAY_S_MAX
    found = consume(brokers[0].bootstrap, TOPIC, len(load.acknowledged), "readers")
    assert sorted(map(int, found)) == sorted(load.acknowledged)
