"""Other libraries' clients for tests: each starts at the first record, and is closed after its test.

    producer = clients.producer(orders)                 # of the cluster that has this topic
    consumer = clients.consumer(orders)                 # of all its partitions, without a group
    member = clients.consumer(orders, group="billing")  # subscribed, as a member of a group

`settings` are the library's own, by its own names; they override what is set here.  A library is imported when the
first client is made.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla.testing.topic import Topic

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from confluent_kafka import Consumer, Producer
    from kafka import KafkaConsumer, KafkaProducer

Settings: TypeAlias = Mapping[str, Any]

# The test has ended: records that no broker takes for so long stay unsent.
CLOSED_WITHIN_S: Final = 10.0
METADATA_WITHIN_S: Final = 30.0
# A closed consumer waits for its fetch in flight.
FETCH_WAIT_MAX_MS: Final = 100
# A client meets a restarted broker soon.
RECONNECT_BACKOFF_MAX_MS: Final = 100
# An iteration ends after so long without a record, where the library has such an end.
ITERATION_ENDS_AFTER_MS: Final = 5_000
_NONE: Final[Settings] = MappingProxyType({})


class Located(Protocol):
    """A topic, a namespace, a broker or a cluster: the address of its brokers."""

    @property
    def bootstrap(self) -> str: ...


class ConfluentKafkaClients:
    """Clients of confluent-kafka, which is librdkafka."""

    def __init__(self) -> None:
        self._closing = ExitStack()

    def producer(self, at: Located, *, settings: Settings = _NONE) -> Producer:
        """A producer of the cluster of `at`; records that wait in it are sent when the test has ended."""
        from confluent_kafka import Producer

        producer = Producer({**_common(at.bootstrap, "."), **settings})
        self._closing.callback(producer.flush, CLOSED_WITHIN_S)
        return producer

    def consumer(self, *topics: Topic, group: str | None = None, settings: Settings = _NONE) -> Consumer:
        """A consumer of the topics: a member of `group`, or of all partitions without one."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                **_common(_bootstrap_of(topics), "."),
                # The library needs a group's name, also where no group is joined and nothing is committed.
                **({"group.id": "none", "enable.auto.commit": False} if group is None else {"group.id": group}),
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": FETCH_WAIT_MAX_MS,
                **settings,
            }
        )
        self._closing.callback(_close_confluent_consumer, consumer)
        if group is not None:
            consumer.subscribe([str(topic) for topic in topics])
            return consumer
        partitions = (
            TopicPartition(str(topic), partition, OFFSET_BEGINNING)
            for topic in topics
            for partition in consumer.list_topics(str(topic), METADATA_WITHIN_S).topics[topic].partitions
        )
        consumer.assign(list(partitions))
        return consumer

    def close(self) -> None:
        """Close what is open, the last client first."""
        self._closing.close()


class KafkaPythonClients:
    """Clients of kafka-python."""

    def __init__(self) -> None:
        self._closing = ExitStack()

    def producer(self, at: Located, *, settings: Settings = _NONE) -> KafkaProducer:
        """A producer of the cluster of `at`; records that wait in it are sent when the test has ended."""
        from kafka import KafkaProducer

        producer = KafkaProducer(**{**_common(at.bootstrap, "_"), **settings})
        self._closing.callback(producer.close, timeout=CLOSED_WITHIN_S)
        return producer

    def consumer(self, *topics: Topic, group: str | None = None, settings: Settings = _NONE) -> KafkaConsumer:
        """A consumer of the topics: a member of `group`, or of all partitions without one."""
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            *map(str, topics),
            **{
                **_common(_bootstrap_of(topics), "_"),
                "group_id": group,
                "enable_auto_commit": group is not None,
                "auto_offset_reset": "earliest",
                "fetch_max_wait_ms": FETCH_WAIT_MAX_MS,
                "consumer_timeout_ms": ITERATION_ENDS_AFTER_MS,
                **settings,
            },
        )
        self._closing.callback(consumer.close, timeout_ms=round(CLOSED_WITHIN_S * 1000))
        return consumer

    def close(self) -> None:
        """Close what is open, the last client first."""
        self._closing.close()


class AiokafkaClients:
    """Clients of aiokafka: made in a coroutine, and started and stopped by `async with`."""

    def __init__(self) -> None:
        self._closing = ExitStack()

    def producer(self, at: Located, *, settings: Settings = _NONE) -> AIOKafkaProducer:
        """A producer of the cluster of `at`."""
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=at.bootstrap, **settings)
        self._closing.callback(_stop, asyncio.get_running_loop(), producer)
        return producer

    def consumer(self, *topics: Topic, group: str | None = None, settings: Settings = _NONE) -> AIOKafkaConsumer:
        """A consumer of the topics: a member of `group`, or of all partitions without one."""
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            *map(str, topics),
            **{
                "bootstrap_servers": _bootstrap_of(topics),
                "group_id": group,
                "enable_auto_commit": group is not None,
                "auto_offset_reset": "earliest",
                "fetch_max_wait_ms": FETCH_WAIT_MAX_MS,
                **settings,
            },
        )
        self._closing.callback(_stop, asyncio.get_running_loop(), consumer)
        return consumer

    def close(self) -> None:
        """Stop what a test has left open, the last client first, unless its event loop is closed."""
        self._closing.close()


def _stop(loop: AbstractEventLoop, client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """A test runner keeps its loop while fixtures end; `asyncio.run` has closed its loop, and the sockets with it."""
    if not loop.is_closed():
        loop.run_until_complete(client.stop())


def _close_confluent_consumer(consumer: Consumer) -> None:
    try:
        consumer.close()
    except RuntimeError:
        # The test has closed it: the library reports a second close in this way.
        return


def _common(bootstrap: str, separator: str) -> dict[str, Any]:
    """The settings that two libraries have by the same names, whose words are separated by dots or underscores."""
    names = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": RECONNECT_BACKOFF_MAX_MS,
        "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
    }
    return {name.replace(".", separator): setting for name, setting in names.items()}


def _bootstrap_of(topics: tuple[Topic, ...]) -> str:
    """Raises `ValueError` without a topic, and for topics of several clusters."""
    addresses = {topic.bootstrap for topic in topics}
    if len(addresses) != 1:
        raise ValueError(f"a consumer reads topics of one cluster, and not of {len(addresses)}")
    return addresses.pop()
