"""Produces the records of tests, and compares those of a topic with expected ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, overload

from ottla.client.fetching.messages import Message
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.testing.matching import difference
from ottla.testing.record import ANY, Deserializer, RecordLike, bytes_of, encoded, record_of
from ottla.testing.topic_reader import CLIENT_ID, TopicReader, bootstrap_of

TIMEOUT_MS: Final = 10_000

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def produce(
    topic: str, records: Iterable[RecordLike], *, bootstrap: str | None = None, timeout_ms: int = TIMEOUT_MS
) -> None:
    """Write records to a topic, in this order; they are acknowledged when this returns.

        produce(orders, ["paid", ("order-7", "shipped"), Record(b"lost", headers={"trace": b"1"}, partition=2)])

    A key's partition is the one that Java's clients choose.  `bootstrap`: for a topic that is not of a namespace.
    Raises `ottla.model.errors.OttlaError` when the broker refuses a record or does not answer in time.
    """
    options, delivery = (
        ClientOptions(CLIENT_ID, call_timeout_ms=timeout_ms),
        ProducerOptions(delivery_timeout_ms=timeout_ms),
    )
    with Cluster(bootstrap_of(topic, bootstrap), options) as cluster, RecordProducer(cluster, delivery) as producer:
        for like in records:
            record = record_of(like)
            producer.add(
                str(topic),
                None if record.key is ANY else bytes_of(record.key),
                b"" if record.value is ANY else bytes_of(record.value),
                timestamp_ms=cluster.clock.now_ms() if record.timestamp_ms is ANY else record.timestamp_ms,
                headers=() if record.headers is ANY else record.headers,
                partition=None if record.partition is ANY else record.partition,
            )
        # Each is settled within its own time.
        for result in producer.flush():
            if result.error is not None:
                raise result.error


@overload
def consume_all(
    topic: str, *, count: int = 0, timeout_ms: int = TIMEOUT_MS, bootstrap: str | None = None
) -> list[Message]: ...


@overload
def consume_all(
    topic: str,
    *,
    count: int = 0,
    timeout_ms: int = TIMEOUT_MS,
    bootstrap: str | None = None,
    value_deserializer: Callable[[bytes], ValueT],
) -> list[Message[bytes | None, ValueT | None]]: ...


@overload
def consume_all(
    topic: str,
    *,
    count: int = 0,
    timeout_ms: int = TIMEOUT_MS,
    bootstrap: str | None = None,
    key_deserializer: Callable[[bytes], KeyT],
) -> list[Message[KeyT | None, bytes | None]]: ...


@overload
def consume_all(
    topic: str,
    *,
    count: int = 0,
    timeout_ms: int = TIMEOUT_MS,
    bootstrap: str | None = None,
    key_deserializer: Callable[[bytes], KeyT],
    value_deserializer: Callable[[bytes], ValueT],
) -> list[Message[KeyT | None, ValueT | None]]: ...


def consume_all(
    topic: str,
    *,
    count: int = 0,
    timeout_ms: int = TIMEOUT_MS,
    bootstrap: str | None = None,
    key_deserializer: Deserializer | None = None,
    value_deserializer: Deserializer | None = None,
) -> list[Message[Any, Any]]:
    """All records that a topic has now, by partition and offset; it commits nothing.

        [paid] = consume_all(orders, count=1, value_deserializer=json.loads)
        assert paid.value["order"] == 7

    `count`: wait until there are so many at least, up to `timeout_ms`.  Raises `TimeoutError` when there are not, and
    `ottla.errors.UnknownTopic` when there is no such topic until then.  `bootstrap`: for a topic that is not of a
    namespace.
    """
    where = bootstrap_of(topic, bootstrap)
    with TopicReader(topic, where, timeout_ms, key_deserializer, value_deserializer) as reader:
        reader.wait_for(count)
        found = reader.messages
    if len(found) < count:
        raise TimeoutError(f"{topic} has {len(found)} records after {timeout_ms} ms, and not {count}")
    return found


def assert_produced(
    topic: str,
    expected: Iterable[RecordLike],
    *,
    in_any_order: bool = False,
    timeout_ms: int = TIMEOUT_MS,
    bootstrap: str | None = None,
    key_deserializer: Deserializer | None = None,
    value_deserializer: Deserializer | None = None,
) -> None:
    """Fail unless the topic has just these records.

        assert_produced(orders, ["paid", "shipped"])
        assert_produced(orders, [("order-7", "paid"), Record("shipped", key="order-7", headers={"trace": b"1"})])
        assert_produced(orders, [{"order": 7, "state": "paid"}], value_deserializer=json.loads)

    An expected record is a value, `(key, value)`, or a `Record`; omitted fields may be anything.  Waits up to
    `timeout_ms` until there are as many; an empty list expects none so far.

    The records of a partition come in the order of the list, as Kafka keeps it; between partitions there is no order.
    `in_any_order` compares without it.  `bootstrap`: for a topic that is not of a namespace.
    """
    __tracebackhide__ = True
    has_key_bytes, has_value_bytes = key_deserializer is None, value_deserializer is None
    records = [encoded(record_of(like), key=has_key_bytes, value=has_value_bytes) for like in expected]
    where = bootstrap_of(topic, bootstrap)
    with TopicReader(topic, where, timeout_ms, key_deserializer, value_deserializer) as reader:
        reader.wait_for(len(records))
        found = reader.messages
    differs = difference(records, found, in_any_order=in_any_order)
    if differs is not None:
        raise AssertionError(f"{topic} does not have the expected records: {differs}")
