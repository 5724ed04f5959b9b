"""The input of a program, and all that a consumer of committed records sees of its output."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, Producer

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from tests.eventually import eventually

PARTITIONS: Final = 3
POLL_S: Final = 0.2
FLUSHED_WITHIN_S: Final = 60.0
# A killed member leaves its group after its session, and an open transaction blocks readers until it is aborted.
READ_WITHIN_S: Final = 240.0


def create_topics(bootstrap: str, *names: str) -> None:
    with Cluster(bootstrap) as cluster:
        for name in names:
            Admin(cluster).create_topic(name, PARTITIONS)


class Input:
    """Sends values to a topic, in their order and each once, also while the broker restarts."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def send(self, values: Iterable[str], pause_s: float) -> None:
        for number, value in enumerate(values):
            self._producer.produce(self._topic, value.encode(), partition=number % PARTITIONS)
            self._producer.poll(0)
            time.sleep(pause_s)
        assert self._producer.flush(FLUSHED_WITHIN_S) == 0, "the input was not acknowledged"


class Output:
    """Reads a topic from its start: records of committed transactions, or all that are there."""

    def __init__(self, bootstrap: str, topic: str, isolation: str = "read_committed") -> None:
        self.records: list[tuple[bytes | None, bytes]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"output-{uuid.uuid4().hex[:8]}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
            }
        )
        self._consumer.subscribe([topic])

    def read(self) -> int:
        """What has come since; return how many records there are now."""
        while (message := self._consumer.poll(POLL_S)) is not None:
            if message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                key = message.key()
                assert key is None or isinstance(key, bytes)
                self.records.append((key, value))
        return len(self.records)

    def wait_for(self, count: int) -> None:
        eventually(self.read, lambda seen: seen >= count, within_s=READ_WITHIN_S)

    def close(self) -> None:
        self._consumer.close()
