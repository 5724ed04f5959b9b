"""Real brokers for the client's tests: everything here must hold against Apache Kafka and Ottla alike."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing import Namespace
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.old_records import APACHE_KAFKA_KEEPS_OLD_RECORDS, KEEPS_OLD_RECORDS
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.kafka_jars import KafkaUnavailable

NewTopicName = Callable[..., str]


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka(APACHE_KAFKA_KEEPS_OLD_RECORDS) as kafka:
            yield kafka
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=KEEPS_OLD_RECORDS) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker of this test file."""
    with RunningBroker(settings=KEEPS_OLD_RECORDS) as running:
        yield running


@pytest.fixture
def namespace(broker: RunningBroker) -> Iterator[Namespace]:
    with Namespace(broker.bootstrap) as names:
        yield names


@pytest.fixture(scope="session", params=[pytest.param("apache_kafka", marks=pytest.mark.interop), "ottla_broker"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of each broker in turn; each test topic has a unique name."""
    broker = request.getfixturevalue(request.param)
    assert isinstance(broker, ApacheKafka | RunningBroker)
    return broker.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def new_topic(cluster: Cluster) -> NewTopicName:
    """Creates topics and returns their names.  Retention is off: test records have old timestamps.

    Apache Kafka's controller answers before its broker knows of the topic, so the broker is polled until it does.
    """

    def is_known(name: str, partitions_count: int) -> bool:
        (topic,) = Admin(cluster).describe_topics([name])
        return not topic.error_code and len(topic.partitions) == partitions_count

    def make(partitions_count: int = 1, **configs: str) -> str:
        name = f"client-{uuid.uuid4().hex[:10]}"
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        Admin(cluster).create_topic(name, partitions_count, configs=settings)
        eventually(lambda: is_known(name, partitions_count))
        return name

    return make
