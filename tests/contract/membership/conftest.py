"""Every test of this folder runs at every home of memberships."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.zookeeper import RunningZooKeeper
from tests.contract.membership.membership_homes import SETTINGS, MembershipHome, kafka_home, tree_backend
from tests.contract.membership.reader import Ledger
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable

KAFKA_HOMES = [
    "ottla-classic",
    "ottla-consumer",
    pytest.param("apache-kafka-classic", marks=pytest.mark.interop),
    pytest.param("apache-kafka-consumer", marks=pytest.mark.interop),
]
HOMES = [*KAFKA_HOMES, "tree"]


@pytest.fixture(scope="session")
def ottla_broker() -> Iterator[str]:
    """Its address."""
    with either_broker(BrokerKind.OTTLA, SETTINGS) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def apache_kafka_broker() -> Iterator[str]:
    try:
        with either_broker(BrokerKind.APACHE_KAFKA, SETTINGS) as bootstrap:
            yield bootstrap
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.fixture(scope="session", params=HOMES)
def home(request: pytest.FixtureRequest) -> Iterator[MembershipHome]:
    """`request.param` names it."""
    if request.param == "tree":
        zookeeper = request.getfixturevalue("zookeeper")
        assert isinstance(zookeeper, RunningZooKeeper)
        with tree_backend(zookeeper) as tree:
            yield tree
        return
    kind, _, protocol = request.param.rpartition("-")
    bootstrap = request.getfixturevalue(f"{kind.replace('-', '_')}_broker")
    assert isinstance(bootstrap, str)
    with kafka_home(bootstrap, protocol) as group:
        yield group


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """The ledger of a test's group; at its end no guarantee was broken."""
    book = Ledger()
    yield book
    assert not book.faults, "\n".join(book.faults)
