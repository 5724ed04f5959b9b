"""Transactional ids in states that only years or an accident bring about: exhausted epochs, and a coordinator that
does not know a transaction that is open in a partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer as ConfluentProducer

import ottla
from ottla.cli.transaction import command
from ottla.client.admin.admin import Admin
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.producing import transaction_driver
from ottla.client.wire.cluster import Cluster
from ottla.errors import MessageNotDelivered
from ottla.records.header import read_header
from ottla.testing.broker import RunningBroker
from ottla.transactions.transaction import EPOCH_MAX, Transaction, TransactionState
from tests.eventually import eventually
from tests.peers.java_tool import TRANSACTIONS, run_tool
from tests.peers.kafka_jars import KafkaUnavailable
from tests.stopped_transactions import set_transactions

WITHIN_S: Final = 60.0
TIMEOUT_MS: Final = 60_000
# Above every level of `transaction.version`: producers add their partitions.
NO_LEVEL: Final = 99
LOST: Final = "lost"
HANGING: Final = ("hanging-ottla", "hanging-apache")
# By its topic: the epoch that the coordinator finds.
EXHAUSTED: Final = {"implicit": EPOCH_MAX - 2, "added": EPOCH_MAX - 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data_dir = tmp_path_factory.mktemp("changed-transactions")
    with RunningBroker(data_dir) as broker:
        lost = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": LOST})
        lost.init_transactions(WITHIN_S)
        with Cluster(broker.bootstrap) as cluster:
            for topic in (*HANGING, *EXHAUSTED):
                Admin(cluster).create_topic(topic, 1)
            exhausted = {}
            for name, epoch in EXHAUSTED.items():
                producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
                producer.init_transactions(WITHIN_S)
                producer_id = TransactionAdmin(cluster).describe(name).producer_id
                exhausted[name] = Transaction(producer_id, epoch, TIMEOUT_MS, TransactionState.EMPTY)
        lost.begin_transaction()
        for topic in HANGING:
            lost.produce(topic, b"never committed")
        assert lost.flush(WITHIN_S) == 0
        broker.stop()
        set_transactions(data_dir, {LOST: None, **exhausted})
        broker.start()
        for topic in HANGING:
            with ottla.Producer(broker.bootstrap) as other:
                other.send(topic, b"after it")
        yield broker


@pytest.fixture
def bootstrap(broker: RunningBroker) -> str:
    return broker.bootstrap


def read(bootstrap: str, topic: str) -> list[bytes | None]:
    """The committed messages."""
    with ottla.SimpleConsumer(bootstrap, topic, 0, isolation_level="read_committed") as consumer:
        return [message.value for message in consumer.fetch(0, max_wait_ms=0)]


def ottla_transaction(bootstrap: str, verb: str, *arguments: str) -> Result:
    return CliRunner().invoke(command, [verb, "--bootstrap-server", bootstrap, *arguments])


def test_transaction_that_no_coordinator_knows_is_found_and_aborted_by_the_command(bootstrap: str) -> None:
    topic = HANGING[0]
    where = ("--topic", topic, "--max-timeout-minutes", "0")
    assert read(bootstrap, topic) == []
    found = json.loads(ottla_transaction(bootstrap, "find-hanging", *where, "--json").stdout)
    assert (found["partition"], found["start_offset"]) == (f"{topic}-0", 0)
    # With the default it may be that its coordinator will still end it.
    assert ottla_transaction(bootstrap, "find-hanging", "--topic", topic, "--json").stdout == ""
    aborted = ottla_transaction(bootstrap, "abort", *where, "--partition", "0", "--start-offset", "0")
    assert aborted.exit_code == 0, aborted.output
    assert aborted.stdout == f"aborted the transaction of producer {found['producer_id']} in {topic}-0\n"
    assert ottla_transaction(bootstrap, "find-hanging", *where, "--json").stdout == ""
    assert eventually(lambda: read(bootstrap, topic)) == [b"after it"]


@pytest.mark.interop
def test_transaction_that_no_coordinator_knows_is_found_and_aborted_by_the_tool_of_apache_kafka(bootstrap: str) -> None:
    topic = HANGING[1]
    assert read(bootstrap, topic) == []
    tool = ("--bootstrap-server", bootstrap)
    try:
        found = run_tool(TRANSACTIONS, *tool, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert re.search(rf"{topic}\s+0\s+\d+\s+0\s", found.stdout), found.stdout + found.stderr
    abort = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    done = run_tool(TRANSACTIONS, *tool, "abort", *abort)
    assert done.returncode == 0, done.stdout + done.stderr
    assert eventually(lambda: read(bootstrap, topic)) == [b"after it"]


def batches(bootstrap: str, topic: str) -> list[tuple[int, int, bool]]:
    """Producer id, epoch and whether it is a marker, of all batches."""
    with Cluster(bootstrap) as cluster:
        headers = [read_header(batch) for batch in fetch_raw(cluster, topic, 0, 0).batches()]
    return [(each.producer_id, each.producer_epoch, each.is_control) for each in headers]


def test_end_that_exhausts_the_epochs_gives_its_producer_a_new_id(bootstrap: str) -> None:
    topic = "implicit"
    with ottla.Producer(bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for value in (b"1", b"2", b"3"):
            with producer.transaction():
                producer.send(topic, value)
    assert eventually(lambda: read(bootstrap, topic), lambda values: len(values) == 3) == [b"1", b"2", b"3"]
    stored = batches(bootstrap, topic)
    old, new = stored[0][0], stored[-1][0]
    assert new != old
    assert stored == [
        (old, EPOCH_MAX - 1, False),
        (old, EPOCH_MAX, True),
        (old, EPOCH_MAX, False),
        # The one epoch that no producer is given.
        (old, EPOCH_MAX + 1, True),
        (new, 0, False),
        (new, 1, True),
    ]


def test_init_of_a_producer_whose_epochs_are_exhausted_gives_a_new_id(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_driver, "IMPLICIT_LEVEL", NO_LEVEL)
    topic = "added"
    with ottla.Producer(bootstrap, transactional_id=topic) as former:
        former.init_transactions()
        with former.transaction():
            former.send(topic, b"1")
        with ottla.Producer(bootstrap, transactional_id=topic) as following:
            following.init_transactions()
            former.begin_transaction()
            with pytest.raises(MessageNotDelivered, match="INVALID_PRODUCER_ID_MAPPING"):
                former.send(topic, b"of the replaced producer").wait()
            with following.transaction():
                following.send(topic, b"2")
    assert eventually(lambda: read(bootstrap, topic), lambda values: len(values) == 2) == [b"1", b"2"]
    stored = batches(bootstrap, topic)
    old, new = stored[0][0], stored[-1][0]
    assert new != old
    assert stored == [(old, EPOCH_MAX, False), (old, EPOCH_MAX, True), (new, 0, False), (new, 0, True)]
