"""Transactions on a real broker, by both protocols: the leaders add partitions (KIP-890), or the producer does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from click.testing import CliRunner

import ottla
import ottla.aio
from ottla.cli.records.consume import command
from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.offsets import LATEST, Isolation, IsolationLevel, list_offsets
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing import transaction_driver
from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.streams.message_stream import MessageStream
from ottla.client.wire.cluster import Cluster
from ottla.errors import (
    BrokerRefused,
    InvalidTransactionState,
    MessageNotDelivered,
    NotAssigned,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
)
from ottla.model.identifiers import TopicPartition
from ottla.records.header import read_header
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.peers.apache_kafka import ApacheKafka

# Above every level.
NO_LEVEL: Final = 99
ADDED: Final = "added"


@pytest.fixture(params=[pytest.param("apache_kafka", marks=pytest.mark.interop), "ottla_broker"])
def broker_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["implicit", ADDED])
def bootstrap(request: pytest.FixtureRequest, broker_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker's address; its client follows the protocol that it has finalized, or the one before that."""
    if request.param == ADDED:
        monkeypatch.setattr(transaction_driver, "IMPLICIT_LEVEL", NO_LEVEL)
    broker = request.getfixturevalue(broker_name)
    assert isinstance(broker, ApacheKafka | RunningBroker)
    return broker.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


def new_name() -> str:
    return f"transactions-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return new_topic(cluster)


def new_topic(cluster: Cluster, configs: Mapping[str, str] | None = None) -> str:
    """Of two partitions."""
    name = new_name()
    create_topic(cluster, name, configs)
    return name


def create_topic(cluster: Cluster, name: str, configs: Mapping[str, str] | None = None) -> None:
    Admin(cluster).create_topic(name, 2, configs=configs or {})

    def is_known() -> bool:
        (found,) = Admin(cluster).describe_topics([name])
        return not found.error_code and len(found.partitions) == 2

    eventually(is_known)


@pytest.fixture
def producer(bootstrap: str) -> Iterator[ottla.Producer]:
    """A producer that may begin a transaction."""
    with ottla.Producer(bootstrap, transactional_id=new_name()) as producer:
        producer.init_transactions()
        yield producer


def read(bootstrap: str, topic: str, level: Isolation = "read_committed") -> list[bytes | None]:
    """All messages, in the order of their values."""
    values: list[bytes | None] = []
    for partition in range(2):
        with ottla.SimpleConsumer(bootstrap, topic, partition, isolation_level=level) as consumer:
            offset = 0
            while messages := consumer.fetch(offset, max_wait_ms=0):
                values += [message.value for message in messages]
                offset = messages[-1].offset + 1
    return sorted(values, key=lambda value: value or b"")


def assert_read(bootstrap: str, topic: str, expected: list[bytes]) -> None:
    """Committed messages are read when the markers are written, soon after the commit was answered."""
    eventually(lambda: read(bootstrap, topic), lambda values: values == expected)


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    bootstrap: str, topic: str, producer: ottla.Producer
) -> None:
    for number in range(6):
        producer.begin_transaction()
        deliveries = [producer.send(topic, b"%d-%d" % (number, partition), partition=partition) for partition in (0, 1)]
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        assert all(delivery.is_done for delivery in deliveries)
    expected = [b"%d-%d" % (number, partition) for number in (0, 2, 4) for partition in (0, 1)]
    assert_read(bootstrap, topic, expected)
    with ottla.ConsumerConnector(
        bootstrap, group=new_name(), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert sorted(next(stream).value or b"" for _ in range(6)) == expected


def test_each_end_advances_the_epoch_where_the_cluster_has_finalized_that(
    topic: str, producer: ottla.Producer, cluster: Cluster
) -> None:
    for value in (b"1", b"2"):
        with producer.transaction():
            producer.send(topic, value, partition=0)
    headers = [read_header(batch) for batch in fetch_raw(cluster, topic, 0, 0).batches()]
    first, second = [header.producer_epoch for header in headers if not header.is_control]
    assert all(header.is_transactional for header in headers)
    level: int = transaction_driver.IMPLICIT_LEVEL
    assert second - first == (0 if level == NO_LEVEL else 1)


def test_open_transaction_holds_readers_of_committed_messages_back(
    bootstrap: str, topic: str, producer: ottla.Producer, cluster: Cluster
) -> None:
    first = TopicPartition(topic, 0)
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0).wait()
    with ottla.Producer(bootstrap) as other:
        other.send(topic, b"after", partition=0)
    assert read(bootstrap, topic) == []
    assert read(bootstrap, topic, "read_uncommitted") == [b"after", b"open"]
    assert list_offsets(cluster, {first: LATEST}, isolation=IsolationLevel.READ_COMMITTED)[first].offset == 0
    assert list_offsets(cluster, {first: LATEST})[first].offset == 2
    producer.commit_transaction()
    assert_read(bootstrap, topic, [b"after", b"open"])


def test_consume_command_leaves_aborted_messages_out_with_read_committed(
    bootstrap: str, topic: str, producer: ottla.Producer
) -> None:
    with producer.transaction():
        producer.send(topic, b"kept", partition=0)
    producer.begin_transaction()
    producer.send(topic, b"aborted", partition=0).wait()
    producer.abort_transaction()

    def consume(*arguments: str) -> list[str]:
        flags = ["--bootstrap-server", bootstrap, "--from-beginning", "--until-end", *arguments]
        done = CliRunner().invoke(command, [topic, *flags], catch_exceptions=False)
        return done.stdout.split()

    eventually(lambda: consume("--isolation-level", "read_committed"), lambda lines: lines == ["kept"])
    assert consume() == ["kept", "aborted"]


def test_block_commits_and_an_exception_aborts_it(bootstrap: str, topic: str, producer: ottla.Producer) -> None:
    with producer.transaction():
        producer.send(topic, b"kept")
    deliveries: list[Delivery[Receipt]] = []

    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"stored, and aborted", partition=0).wait()
            deliveries.append(producer.send(topic, b"never sent", partition=1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    (unsent,) = deliveries
    error = unsent.error()
    if error is not None:  # it may have been sent at once
        assert isinstance(error, MessageNotDelivered)
        assert isinstance(error.reason, TransactionAborted)
    with producer.transaction():
        pass
    with producer.transaction():
        producer.send(topic, b"kept, too")
        producer.commit_transaction()
    assert_read(bootstrap, topic, [b"kept", b"kept, too"])


@pytest.mark.parametrize("commits", [True, False])
def test_transaction_ends_whose_topic_was_recreated_meanwhile(
    bootstrap: str, topic: str, cluster: Cluster, commits: bool
) -> None:
    """Its marker in the new topic ends nothing there, and neither hides nor holds back what others produce."""
    kept, name = new_topic(cluster), new_name()
    with ottla.Producer(bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"deleted", partition=0).wait()
        producer.send(kept, b"kept", partition=0).wait()
        recreate(cluster, topic)
        with ottla.Producer(bootstrap) as other:
            other.send(topic, b"of another", partition=0)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    with ottla.Producer(bootstrap, transactional_id=name) as following:
        following.init_transactions()
        with following.transaction():
            following.send(topic, b"of the next one", partition=0)
    assert_read(bootstrap, topic, [b"of another", b"of the next one"])
    assert_read(bootstrap, kept, [b"kept"] if commits else [])
    first = TopicPartition(topic, 0)
    stable_end = list_offsets(cluster, {first: LATEST}, isolation=IsolationLevel.READ_COMMITTED)[first].offset
    assert stable_end == list_offsets(cluster, {first: LATEST})[first].offset


def recreate(cluster: Cluster, topic: str) -> None:
    Admin(cluster).delete_topics([topic])
    eventually(lambda: Admin(cluster).describe_topics([topic])[0].error_code)
    create_topic(cluster, topic)


def test_calls_out_of_order_do_nothing(bootstrap: str, topic: str) -> None:
    with ottla.Producer(bootstrap, transactional_id=new_name()) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(InvalidTransactionState):
                call()
        with pytest.raises(InvalidTransactionState, match="init_transactions"):
            producer.send(topic, b"v")
    with ottla.Producer(bootstrap) as plain, pytest.raises(InvalidTransactionState, match="no transactions"):
        plain.begin_transaction()


def test_newer_producer_fences_the_older_and_aborts_what_it_has_open(bootstrap: str, topic: str) -> None:
    name = new_name()
    with ottla.Producer(bootstrap, transactional_id=name) as older:
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"of the older").wait()
        with ottla.Producer(bootstrap, transactional_id=name) as newer:
            newer.init_transactions()
            with newer.transaction():
                newer.send(topic, b"of the newer")
            with pytest.raises(ProducerFenced, match=name):
                older.commit_transaction()
            with pytest.raises(ProducerFenced):
                older.send(topic, b"lost")
            with newer.transaction():
                newer.send(topic, b"and again")
    assert_read(bootstrap, topic, [b"and again", b"of the newer"])


def test_close_aborts_the_transaction_that_is_open(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ottla.Producer(bootstrap, transactional_id=new_name()) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).wait()
    assert "aborted, since the producer is closed" in caplog.text
    with ottla.Producer(bootstrap) as other:
        other.send(topic, b"after", partition=0)
    assert eventually(lambda: read(bootstrap, topic), lambda values: values != []) == [b"after"]


def test_time_out_above_the_brokers_is_refused_with_a_hint(bootstrap: str) -> None:
    with ottla.Producer(bootstrap, transactional_id=new_name(), transaction_timeout_ms=10_000_000) as producer:
        with pytest.raises(BrokerRefused, match="INVALID_TRANSACTION_TIMEOUT") as raised:
            producer.init_transactions()
        assert "transaction.max.timeout.ms" in (raised.value.hint or "")
        with pytest.raises(BrokerRefused):
            producer.begin_transaction()


def test_message_that_a_leader_refuses_fails_the_transaction_and_no_later_one(
    bootstrap: str, producer: ottla.Producer, cluster: Cluster
) -> None:
    topic = new_topic(cluster, {"max.message.bytes": "1000"})

    def send(*values: bytes) -> None:
        with producer.transaction():
            for partition, value in enumerate(values):
                producer.send(topic, value, partition=partition)

    # The topic takes 1,000 bytes, the producer more.
    with pytest.raises(TransactionAbortable, match=r"MESSAGE_TOO_LARGE|RECORD_LIST_TOO_LARGE|message size"):
        send(b"small", bytes(5_000))
    send(b"next")
    assert_read(bootstrap, topic, [b"next"])


def test_offsets_are_committed_with_the_messages(
    bootstrap: str, topic: str, producer: ottla.Producer, cluster: Cluster
) -> None:
    group, place = new_name(), TopicPartition(topic, 0)
    for offset, is_committed in ((3, True), (9, False), (5, True)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: offset}, group=group)
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert eventually(lambda: GroupAdmin(cluster).committed(group)[place].offset, lambda found: found == 5)


def test_stream_is_copied_once_over_an_abort_and_another_consumer(
    bootstrap: str, topic: str, producer: ottla.Producer
) -> None:
    target, group = f"{topic}-copy", new_name()
    with ottla.Producer(bootstrap) as feed:
        for number in range(20):
            feed.send(topic, b"%d" % number, partition=number % 2)

    def copy(count: int, *, fails: bool = False) -> None:
        with ottla.ConsumerConnector(
            bootstrap, group=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as connector:
            (stream,) = connector.create_message_streams({topic: 1})[topic]
            with producer.transaction():
                for _ in range(count):
                    message = next(stream)
                    producer.send(target, message.value)
                producer.send_offsets_to_transaction(stream.group_offsets(message))
                if fails:
                    raise KeyError

    copy(7)
    with pytest.raises(KeyError):
        copy(7, fails=True)
    copy(13)
    values: list[bytes | None] = []
    with ottla.ConsumerConnector(
        bootstrap, group=new_name(), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as connector:
        (stream,) = connector.create_message_streams({target: 1})[target]
        values = [next(stream).value for _ in range(20)]
    assert sorted(int(value or b"") for value in values) == list(range(20))


def test_member_whose_partition_was_given_to_another_cannot_commit(
    bootstrap: str, topic: str, producer: ottla.Producer, cluster: Cluster
) -> None:
    group = new_name()
    with ottla.Producer(bootstrap) as feed:
        for partition in (0, 1):
            feed.send(topic, b"v", partition=partition)

    def open_stream() -> tuple[ottla.ConsumerConnector, MessageStream]:
        connector = ottla.ConsumerConnector(
            bootstrap, group=group, auto_offset_reset="earliest", enable_auto_commit=False, release_wait_ms=0
        )
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        return connector, stream

    first, stream = open_stream()
    producer.begin_transaction()
    messages = [next(stream) for _ in range(2)]
    second, other = open_stream()
    eventually(lambda: len(stream.partitions) == 1 and len(other.partitions) == 1)

    def offsets() -> None:
        for message in messages:
            stream.group_offsets(message)

    with pytest.raises(NotAssigned):
        offsets()
    producer.abort_transaction()
    assert {place: at.offset for place, at in GroupAdmin(cluster).committed(group).items() if at.offset} == {}
    first.close()
    second.close()


def test_asyncio_producer_commits_and_aborts(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with ottla.aio.Producer(bootstrap, transactional_id=new_name()) as producer:
            await producer.init_transactions()
            async with producer.transaction(), asyncio.TaskGroup() as tasks:
                for number in range(10):
                    tasks.create_task(producer.send(topic, b"%d" % number))
            with pytest.raises(KeyError):
                await failing(producer)
            task = asyncio.get_running_loop().create_task(cancelled(producer))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def failing(producer: ottla.aio.Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"aborted")
            raise KeyError

    async def cancelled(producer: ottla.aio.Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"cancelled")
            await asyncio.Event().wait()

    asyncio.run(run())
    assert_read(bootstrap, topic, sorted(b"%d" % number for number in range(10)))
