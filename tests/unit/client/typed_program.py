"""A program with every public name, for type checkers alone: `mypy --strict` and pyright must accept it as it is.

`assert_type` has the types that users see.  test_public_names.py compares the names with those that are public.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_type

import ottla
import ottla.aio
import ottla.errors
from ottla import (
    Admin,
    ClientSecurity,
    Consumer,
    ConsumerConnector,
    Message,
    Producer,
    SimpleConsumer,
    TopicPartition,
    admin,
    client_security,
    dedup,
)
from ottla.client.groups.group_types import GroupOffsets
from ottla.client.producing.delivery import Acknowledged, Delivery, Receipt
from ottla.client.streams.message_stream import MessageStream
from ottla.interceptors import ConsumerInterceptor, OutgoingMessages, ProducerInterceptor
from ottla.opentelemetry import ConsumerTracing, ProducerTracing
from ottla.statistics import ConsumerMetrics, LatencyMetrics, PartitionMetrics, ProducerMetrics, RequestMetrics
from ottla.testing import (
    ANY,
    BrokerClock,
    BrokerEnded,
    ControlledBroker,
    ControlledCluster,
    Namespace,
    Record,
    Topic,
    assert_produced,
    consume_all,
    produce,
)

PARTITION = TopicPartition("orders", 0)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECURITY = client_security({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"})


def text_of(data: bytes) -> str:
    return data.decode()


def order_of(data: bytes) -> dict[str, int]:
    order: dict[str, int] = json.loads(data)
    return order


def show(hint: str | None) -> None:
    """What a program prints of an error."""


def produces() -> None:
    assert_type(ottla.__version__, str)
    assert_type(SECURITY, ClientSecurity)
    acknowledged: list[Acknowledged] = []
    with Producer("localhost:9092", acks="all", compression="zstd", linger_ms=5, transactional_id="payments") as plain:
        assert_type(plain.send("orders", b"paid", key=b"7"), Delivery[Receipt])
        assert_type(plain.send("orders", [b"paid", None], headers={"trace": b"1"}), Delivery[list[Receipt]])
        assert_type(plain.send("orders", b"paid").wait(1_000), Receipt)
        plain.on_acknowledged(acknowledged.append)
        plain.init_transactions()
        plain.begin_transaction()
        plain.send_offsets_to_transaction({PARTITION: 7}, group="billing")
        plain.commit_transaction()
        plain.begin_transaction()
        plain.abort_transaction()
        with plain.transaction() as transaction:
            transaction.send("orders", b"paid")
        plain.flush(timeout_ms=1_000)
        assert_type(plain.security, ClientSecurity)
        assert_type(plain.metrics(), ProducerMetrics)
    texts: Producer[str, int] = Producer(["one:9092", "two:9092"], key_serializer=str.encode, value_serializer=bytes)
    texts.send("orders", 7, key="7", partition=1, timestamp_ms=0)
    assert_type(texts.bootstrap, str)
    texts.close()


def polls() -> None:
    lost: list[TopicPartition] = []

    def on_assign(consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        consumer.seek_to_beginning(partitions)

    def on_lost(consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        lost.extend(partitions)

    with Consumer("localhost:9092", group="billing", auto_offset_reset="earliest", security=SECURITY) as plain:
        plain.subscribe(["orders"], on_assign=on_assign, on_lost=on_lost)
        plain.subscribe(pattern="orders-.*", exclude="orders-old")
        assert_type(plain.poll(100), Message[bytes | None, bytes | None] | None)
        assert_type(plain.poll_many(10, timeout_ms=100), list[Message[bytes | None, bytes | None]])
        plain.pause([PARTITION])
        plain.resume()
        plain.skip()
        plain.commit(offsets={PARTITION: 7})
        assert_type(plain.assignment, list[TopicPartition])
        assert_type(plain.paused, list[TopicPartition])
        assert_type(plain.position(("orders", 0)), int | None)
        assert_type(plain.positions(), dict[TopicPartition, int | None])
        assert_type(plain.lag(), dict[TopicPartition, int | None])
        assert_type(plain.committed(), dict[TopicPartition, int | None])
        assert_type(plain.beginning_offsets(), dict[TopicPartition, int])
        assert_type(plain.end_offsets([("orders", 0)]), dict[TopicPartition, int])
        assert_type(plain.offsets_for_times({("orders", 0): NOON}), dict[TopicPartition, int | None])
        assert_type(plain.partitions_for("orders"), list[TopicPartition])
        assert_type(plain.topics(), list[str])
        assert_type(plain.group_offsets(), GroupOffsets)
        assert_type(plain.blocked_reason, str | None)
        assert_type(plain.metrics(), ConsumerMetrics)
        assert_type(plain.subscription, list[str])
        plain.unsubscribe()
        plain.assign({("orders", 0): "earliest", ("orders", 1): NOON})
        plain.seek(PARTITION, timestamp_ms=0)
        plain.seek_to_end()
        for message in plain:
            assert_type(message.value, bytes | None)
    decoded = Consumer("localhost:9092", key_deserializer=text_of, value_deserializer=order_of)
    assert_type(decoded, Consumer[str, dict[str, int]])
    assert_type(decoded.poll(), Message[str | None, dict[str, int] | None] | None)
    decoded.close()


def streams() -> None:
    connector = ConsumerConnector("localhost:9092", group="billing", value_deserializer=order_of)
    by_topic = connector.create_message_streams({"orders": 1})
    assert_type(by_topic, dict[str, list[MessageStream[bytes, dict[str, int]]]])
    (stream,) = by_topic["orders"]
    once = dedup(stream, lambda topic, partition: None)
    assert_type(once, Iterator[Message[bytes | None, dict[str, int] | None]])
    for message in stream:
        assert_type(message.timestamp, datetime | None)
        stream.seek(0, "latest")
        stream.seek_all(NOON)
        stream.commit(message)
        assert_type(stream.group_offsets(message), GroupOffsets)
    connector.commit(wait=False)
    assert_type(connector.metrics(), ConsumerMetrics)
    connector.close()
    on_tree = ConsumerConnector(zookeeper="localhost:2181/ottla", group="billing")
    assert_type(on_tree.create_message_streams_by_filter(2, allow="orders-.*"), list[MessageStream[bytes, bytes]])
    assert_type(on_tree.blocked_reason, str | None)


def one_partition() -> None:
    with SimpleConsumer("localhost:9092", "orders", 0, value_deserializer=order_of) as consumer:
        assert_type(consumer.fetch(consumer.earliest()), list[Message[bytes | None, dict[str, int] | None]])
        assert_type(consumer.latest(), int)
        assert_type(consumer.offset_at(NOON), int | None)
        assert_type(consumer.offsets_before("latest"), list[int])


async def with_asyncio() -> None:
    async with ottla.aio.Producer("localhost:9092") as producer:
        assert_type(await producer.send("orders", b"paid"), Receipt)
        assert_type(await producer.send("orders", [b"paid"]), list[Receipt])
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"paid")
        await producer.flush()
    async with ottla.aio.Consumer("localhost:9092", group="billing", value_deserializer=order_of) as consumer:
        consumer.subscribe("orders")
        assert_type(await consumer.poll(), Message[bytes | None, dict[str, int] | None] | None)
        assert_type(await consumer.poll_many(), list[Message[bytes | None, dict[str, int] | None]])
        await consumer.commit()
        async for message in consumer:
            assert_type(message, Message[bytes | None, dict[str, int] | None])
    async with ottla.aio.ConsumerConnector("localhost:9092", group="billing") as connector:
        by_topic = await connector.create_message_streams({"orders": 1})
        assert_type(by_topic, dict[str, list[ottla.aio.MessageStream[bytes, bytes]]])
        async for found in by_topic["orders"][0]:
            await by_topic["orders"][0].commit(found)


class Sends(ProducerInterceptor):
    def on_send(self, messages: OutgoingMessages) -> OutgoingMessages:
        assert_type(messages.values, Sequence[object])
        messages.notes[self] = len(messages.keys)
        return replace(messages, headers=(*messages.headers, ("origin", b"web-1")))

    def on_acknowledgement(
        self, messages: OutgoingMessages, receipts: Sequence[Receipt], error: ottla.errors.OttlaError | None
    ) -> None:
        show(None if error is None else error.hint)


class Receives(ConsumerInterceptor):
    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        return messages

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        assert_type(offsets[PARTITION], int)


def observes(reports: list[ProducerMetrics]) -> None:
    def report(metrics: ConsumerMetrics) -> None:
        assert_type(metrics.partitions, Mapping[TopicPartition, PartitionMetrics])
        assert_type(metrics.partitions[PARTITION].lag, int | None)

    tracing = ConsumerTracing(group="billing")
    with (
        Producer("localhost:9092", interceptors=[Sends(), ProducerTracing()], on_statistics=reports.append) as producer,
        Consumer("localhost:9092", interceptors=[Receives(), tracing], on_statistics=report) as consumer,
    ):
        assert_type(producer.metrics().compression_ratio, float)
        assert_type(producer.metrics().requests, RequestMetrics)
        assert_type(producer.metrics().requests.latencies, Mapping[str, LatencyMetrics])
        for message in consumer:
            with tracing.process(message) as span:
                span.set_attribute("orders.partition", message.partition)


def administers(client: Admin) -> None:
    topic = admin.NewTopic("orders", 3, configs={"cleanup.policy": "compact"})
    assert_type(client.create_topics([topic]), dict[str, admin.CreatedTopic | admin.BrokerRefused])
    assert_type(client.create_topic("views"), admin.CreatedTopic)
    client.ensure_topic("views", 3, 3, {})
    assert_type(client.list_topics(), list[admin.TopicInfo])
    assert_type(client.describe_topics(["views"])[0].partitions[0], admin.PartitionInfo)
    assert_type(client.describe_cluster(), admin.ClusterInfo)
    assert_type(client.describe_cluster().brokers[1], admin.BrokerInfo)
    assert_type(client.delete_topics(["views"]), dict[str, admin.BrokerRefused | None])
    client.create_partitions({"orders": 6}, validate_only=True)
    assert_type(client.list_reassignments(), dict[TopicPartition, admin.OngoingMove])
    client.alter_reassignments({PARTITION: [1, 2, 3]})
    assert_type(client.delete_records({PARTITION: admin.HIGH_WATERMARK}), dict[TopicPartition, int])
    assert_type(client.try_delete_records({PARTITION: 7}), dict[TopicPartition, int | admin.ClientError])

    resource = admin.ConfigResource(admin.ConfigResourceType.TOPIC, "orders")
    assert_type(client.describe_configs(resource), dict[str, admin.ConfigEntry])
    assert_type(client.describe_configs(resource)["retention.ms"].source, admin.ConfigSource)
    client.alter_configs(resource, [admin.ConfigChange("retention.ms", admin.ConfigOperation.SET, "1000")])
    client.set_topic_configs("orders", {"retention.ms": None})
    assert_type(client.topic_configs("orders"), dict[str, str | None])

    for place in (admin.EARLIEST, admin.LATEST, admin.MAX_TIMESTAMP):
        assert_type(client.list_offsets([PARTITION], place), dict[TopicPartition, admin.OffsetAnswer])

    assert_type(client.list_groups(), list[admin.ListedGroup])
    assert_type(client.describe_group("billing"), admin.GroupDescription)
    assert_type(client.describe_group("billing").members, tuple[admin.GroupMember, ...])
    client.set_group_offsets("billing", {PARTITION: admin.CommittedOffset(7)})
    assert_type(client.group_offsets("billing"), dict[TopicPartition, admin.CommittedOffset])
    assert_type(client.group_lag("billing"), dict[TopicPartition, admin.Lag])
    client.delete_group_offsets("billing", [PARTITION])
    try:
        client.delete_group("billing")
    except admin.UnknownGroup as error:
        show(error.hint)

    pattern = admin.ResourcePattern(admin.ResourceType.TOPIC, admin.PatternType.LITERAL, "orders")
    entry = admin.AccessEntry("User:ada", "*", admin.Operation.READ, admin.Permission.ALLOW)
    assert_type(client.create_acls([admin.Acl(pattern, entry)]), dict[admin.Acl, admin.BrokerRefused | None])
    assert_type(client.describe_acls(admin.AclFilter(name="orders")), list[admin.Acl])
    assert_type(client.delete_acls([admin.AclFilter()]), list[admin.Acl])

    client.set_password("ada", "secret", [admin.SaslMechanism.SCRAM_SHA_512])
    assert_type(client.describe_users(), dict[str, list[admin.UserCredential]])
    client.delete_user("ada")

    client.alter_quotas(admin.QuotaEntity(user="ada"), {admin.QuotaKind.PRODUCER_BYTE_RATE: 1e6})
    assert_type(client.describe_quotas({admin.EntityType.USER: "ada"}), list[admin.SetQuotas])

    assert_type(client.list_transactions(), list[admin.ListedTransaction])
    assert_type(client.hanging_transactions([PARTITION], 0), list[admin.OpenTransaction])
    try:
        assert_type(client.describe_transaction("payments"), admin.TransactionDescription)
    except admin.UnknownTransactionalId as error:
        show(error.hint)
    client.abort_transaction(client.hanging_transactions([PARTITION], 0)[0])
    client.close()
    assert_type(admin.Admin("localhost:9092"), Admin)


def tests(broker: ControlledBroker, cluster: ControlledCluster, namespace: Namespace) -> None:
    orders = namespace.topic("orders", partitions=3, replicas=1, configs={"cleanup.policy": "compact"})
    assert_type(orders, Topic)
    produce(orders, ["paid", ("7", "paid"), Record("paid", headers={"trace": "1"})])
    assert_produced(orders, [Record(ANY, key="7")], in_any_order=True)
    assert_type(consume_all(orders), list[Message])
    assert_type(consume_all(orders, value_deserializer=order_of), list[Message[bytes | None, dict[str, int] | None]])
    assert_type(broker.clock, BrokerClock)
    assert_type(broker.clock.now(), datetime)
    with broker.killed(), cluster.broker(cluster.leader_of(orders, 0)).paused():
        assert_type(cluster.wait_for_leader(orders, 0, other_than=1), int)
    try:
        broker.restore()
    except BrokerEnded as error:
        show(error.hint)


# In the order of their subjects in `ottla.errors`.
ERRORS: tuple[type[ottla.errors.OttlaError], ...] = (
    ottla.errors.BufferFull,
    ottla.errors.MessageTooLarge,
    ottla.errors.MessageRefused,
    ottla.errors.MessageNotDelivered,
    ottla.errors.MessagesNotDelivered,
    ottla.errors.ProducerClosed,
    ottla.errors.ProducerFenced,
    ottla.errors.TransactionAbortable,
    ottla.errors.TransactionAborted,
    ottla.errors.TransactionOutcomeUnknown,
    ottla.errors.InvalidTransactionState,
    ottla.errors.PoisonMessage,
    ottla.errors.NoPosition,
    ottla.errors.NotAssigned,
    ottla.errors.CommitFailed,
    ottla.errors.RebalanceInProgress,
    ottla.errors.ConsumerClosed,
    ottla.errors.ConsumerBusy,
    ottla.errors.ConfigError,
    ottla.errors.UnknownTopic,
    ottla.errors.BrokerUnreachable,
    ottla.errors.BrokerRefused,
    ottla.errors.CallTimedOut,
    ottla.errors.OffsetOutOfRange,
    ottla.errors.AuthenticationFailed,
    ottla.errors.ListenerMismatch,
    ottla.errors.TlsFailed,
    ottla.errors.TokenUnavailable,
)
