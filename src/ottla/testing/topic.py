"""A topic of a test: its records are produced, read until they are there, and compared with expected ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar, overload

from ottla.client.fetching.messages import Message
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.client.wire.options import ClientOptions
from ottla.model.identifiers import TopicPartition
from ottla.testing.record import (
    ANY,
    Deserializer,
    Record,
    RecordLike,
    bytes_of,
    deserialized,
    encoded,
    is_such,
    record_of,
)


class Topic(str):
    """A topic's name, which goes wherever a name goes, and knows where the topic is: for `produce`, `consume_all`,
    `assert_produced`."""

    __slots__ = ("bootstrap",)

    bootstrap: str

    def __new__(cls, name: str, bootstrap: str) -> Self:
        topic = super().__new__(cls, name)
        topic.bootstrap = bootstrap
        return topic

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # as `copy` and `pickle` call __new__
        return str(self), self.bootstrap


CLIENT_ID: Final = "ottla-testing"
# A read that has started must end, also for callers that do not wait.
CALL_MS_MIN: Final = 5_000
_POLL_S: Final = 0.01


def bootstrap_of(topic: str, bootstrap: str | None) -> str:
    """Where a topic is.  Raises `TypeError` when a plain name comes without it."""
    if bootstrap is not None:
        return bootstrap
    if isinstance(topic, Topic):
        return topic.bootstrap
    raise TypeError(f"which broker has {topic!r}? Use a topic of the namespace, or bootstrap=broker.bootstrap")


class TopicReader:
    """All records of a topic; one with partitions that were added since is read whole, too."""

    def __init__(
        self,
        topic: str,
        bootstrap: str,
        timeout_ms: int,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        self._topic = str(topic)
        self._timeout_ms = timeout_ms
        # `wait_for` requests a missing topic again.
        options = ClientOptions(CLIENT_ID, call_timeout_ms=max(timeout_ms, CALL_MS_MIN), unknown_topic_wait_ms=0)
        self._cluster = Cluster(bootstrap, options)
        self._log = TopicLog(self._cluster, self._topic)
        self._key = key
        self._value = value
        self._messages: dict[TopicPartition, list[Message[Any, Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cluster.close()

    @property
    def messages(self) -> list[Message[Any, Any]]:
        """The records read so far, by partition and offset."""
        return list(chain.from_iterable(self._messages[partition] for partition in sorted(self._messages)))

    def wait_for(self, count: int) -> None:
        """Read all that there is, again until it is `count` records or time is over.  Raises `UnknownTopic`."""
        deadline = self._cluster.retrying.deadline(self._timeout_ms)
        while True:
            try:
                self.read()
            except UnknownTopic:
                if deadline.has_passed:
                    raise
            else:
                if sum(map(len, self._messages.values())) >= count or deadline.has_passed:
                    return
            time.sleep(_POLL_S)

    def read(self) -> None:
        """Read up to the ends of the partitions as they are now."""
        self._cluster.forget([self._topic])
        for message in self._log.read_in(self._log.ranges()):
            partition = TopicPartition(message.topic, message.partition)
            self._messages.setdefault(partition, []).append(self._deserialized(message))

    def _deserialized(self, message: Message) -> Message[Any, Any]:
        key, value = deserialized(self._key, message.key), deserialized(self._value, message.value)
        return Message(
            message.topic, message.partition, message.offset, message.timestamp_ms, key, value, message.headers
        )


AnyMessage: TypeAlias = Message[Any, Any]

LINES_MAX: Final = 20
# Only equal records in several partitions leave several ways open; so many more are tried than there are records.
STATES_MAX: Final = 50_000


def difference(expected: Sequence[Record], found: Sequence[AnyMessage], *, in_any_order: bool = False) -> str | None:
    """How they differ, in lines; None when they agree.

    Each expected record is one message, and each message is expected.  Messages of a partition come in the order of the
    list; between partitions there is no order.
    """
    is_in_order = None if in_any_order else is_interleaving(expected, _by_partition(found))
    if is_in_order:
        return None
    missing, unexpected = Pairing(expected, found).unpaired()
    if missing or unexpected:
        reason = f"{len(found)} records, {len(expected)} expected"
        return "\n".join([reason, *_listed("missing", missing), *_listed("unexpected", unexpected)])
    if in_any_order:
        return None
    reason = "the records are there, in another order"
    if is_in_order is None:
        reason = "too many equal records in several partitions to find their order: compare them with in_any_order=True"
    return "\n".join([reason, *_listed("expected", expected), *_listed("found", found)])


def is_interleaving(expected: Sequence[Record], partitions: Sequence[Sequence[AnyMessage]]) -> bool | None:
    """Whether the partitions, each in its order, make up the expected records; None: it takes too long to find out."""
    if len(expected) != sum(map(len, partitions)):
        return False
    start = (0,) * len(partitions)
    seen, waiting = {start}, [(0, start)]
    while waiting:
        count, taken = waiting.pop()
        if count == len(expected):
            return True
        if len(seen) > STATES_MAX + len(expected):
            return None
        for index, partition in enumerate(partitions):
            if taken[index] < len(partition) and is_such(expected[count], partition[taken[index]]):
                following = (*taken[:index], taken[index] + 1, *taken[index + 1 :])
                if following not in seen:
                    seen.add(following)
                    waiting.append((count + 1, following))
    return False


class Pairing:
    """As many records as possible, each with a message that matches it, in any order.

    A record that finds all such messages taken takes one for which its taker finds another (augmenting paths).
    """

    def __init__(self, expected: Sequence[Record], found: Sequence[AnyMessage]) -> None:
        self._expected = expected
        self._found = found
        self._message_of: dict[int, int] = {}
        self._record_of: dict[int, int] = {}
        for index in range(len(expected)):
            self._pair(index)

    def unpaired(self) -> tuple[list[Record], list[AnyMessage]]:
        """The records without a message, and the messages without a record."""
        return (
            [record for index, record in enumerate(self._expected) if index not in self._message_of],
            [message for index, message in enumerate(self._found) if index not in self._record_of],
        )

    def _pair(self, first: int) -> None:
        # A message, and the record that would take it.
        takers: dict[int, int] = {}
        waiting = deque([first])
        while waiting:
            record = waiting.popleft()
            for message in self._candidates(record, takers):
                takers[message] = record
                if message not in self._record_of:
                    self._shift(message, takers)
                    return
                waiting.append(self._record_of[message])

    def _candidates(self, record: int, takers: dict[int, int]) -> Iterable[int]:
        # Most records are where they are expected.
        start, count = min(record, len(self._found)), len(self._found)
        for message in chain(range(start, count), range(start)):
            if message not in takers and is_such(self._expected[record], self._found[message]):
                yield message

    def _shift(self, free: int, takers: dict[int, int]) -> None:
        message: int | None = free
        while message is not None:
            record = takers[message]
            former = self._message_of.get(record)
            self._message_of[record], self._record_of[message] = message, record
            message = former


def _by_partition(found: Iterable[AnyMessage]) -> list[list[AnyMessage]]:
    partitions: dict[int, list[AnyMessage]] = {}
    for message in found:
        partitions.setdefault(message.partition, []).append(message)
    return list(partitions.values())


def _listed(title: str, items: Sequence[object]) -> list[str]:
    if not items:
        return []
    shown = [f"  {item!r}" for item in items[:LINES_MAX]]
    rest = [f"  ... and {len(items) - LINES_MAX} more"] if len(items) > LINES_MAX else []
    return [f"{title}:", *shown, *rest]


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
