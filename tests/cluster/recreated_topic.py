"""A topic is deleted and recreated under the same name: no client ever receives a record of the former one.

Each value names the id of the topic that it was written to.  Meanwhile the brokers are read
from all the time, by name and by id: an answer by id must hold values of that very topic, and an answer by name must
not be older than the same broker's earlier metadata.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from confluent_kafka import KafkaError, Message, Producer

from ottla.client.admin.admin import Admin
from ottla.client.wire.address import Address
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import dial_tcp
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.records.record import decode_batch, split_batches
from ottla.runtime.clock import SystemClock
from ottla.storage.log_files import LOG_SUFFIX
from ottla.testing.broker import RunningBroker
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.cluster.target import Target
from tests.eventually import eventually

RECREATED_TOPIC: Final = "recreated"
_PARTITIONS_COUNT: Final = 3
_VALUES_COUNT: Final = 200
_WRITTEN_WITHIN_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.1
_READ_EVERY_S: Final = 0.01
_READ_BYTES_MAX: Final = 1 << 20
_BY_NAME: Final = 12
_BY_ID: Final = 13
# Of Metadata.
_IDS_FROM: Final = 10
_CALL_TIMEOUT_MS: Final = 2_000
_CLOCK: Final = SystemClock()
_OPTIONS: Final = ClientOptions(
    client_id="recreated", call_timeout_ms=10_000, connect_timeout_ms=1_000, request_timeout_ms=5_000
)


def recreate_topic(target: Target) -> str:
    """Recreated at once, and a broker is killed right after."""
    return _recreate(target, away=None)


def recreate_topic_while_one_is_away(target: Target) -> str:
    """A broker is killed before the deletion; it returns with the former topic's data when the new one is created."""
    return _recreate(target, away=target.any_broker())


def _recreate(target: Target, away: RunningBroker | None) -> str:
    cluster = target.cluster
    cluster.wait_until_replicated()
    _delete(target)
    former_id = _create(target)
    _write(target, former_id)
    cluster.wait_until_replicated()
    with _Readers(cluster.brokers.values()) as readers:
        readers.made.append(former_id)
        readers.wait_until_read(former_id)
        if away is not None:
            away.kill()
        _delete(target)
        if away is not None:
            target.wait_a_while()
            away.launch()
        topic_id = _create(target)
        readers.made.append(topic_id)
        if away is None:
            killed = target.any_broker()
            killed.kill()
            killed.launch()
        else:
            killed = away
        written = _write(target, topic_id)
        killed.wait_until_ready()
        cluster.wait_until_replicated()
        readers.wait_until_read(topic_id)
    target.clients.problems += readers.problems
    _check_all(target, topic_id, written)
    _check_disks(target, former_id)
    deleted = f"topic {former_id} deleted and made again as {topic_id}, broker {killed.node_id} killed"
    return f"{deleted} ({'before' if away is not None else 'after'}); {readers.read_count} answers read meanwhile"


def _create(target: Target) -> UUID:
    """Retry until it succeeds: a deletion takes time, and a broker that is down cannot get replicas."""
    made: list[UUID] = []

    def is_there() -> bool:
        with Cluster(target.cluster.bootstrap, _OPTIONS) as client:
            try:
                replicas_count = len(target.cluster.brokers)
                made.append(Admin(client).create_topic(RECREATED_TOPIC, _PARTITIONS_COUNT, replicas_count).topic_id)
            except BrokerRefused as refused:
                # It may have been created before, and the response was lost.
                if refused.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    made.extend(_ids_at(client))
                elif refused.code is not ErrorCode.INVALID_REPLICATION_FACTOR and not refused.is_retriable:
                    raise
            except ClientError:
                return False
        return bool(made)

    eventually(is_there, every_s=_ASK_AGAIN_S)
    return made[0]


def _delete(target: Target) -> None:
    """Until no queried broker lists it."""

    def is_gone() -> bool:
        try:
            with Cluster(target.cluster.bootstrap, _OPTIONS) as client:
                refused = Admin(client).delete_topics([RECREATED_TOPIC])[RECREATED_TOPIC]
        except ClientError:
            return False
        return refused is not None and refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    eventually(is_gone, every_s=_ASK_AGAIN_S)


def _ids_at(client: Cluster) -> list[UUID]:
    return [topic.topic_id for topic in Admin(client).describe_topics([RECREATED_TOPIC]) if not topic.error_code]


def _write(target: Target, topic_id: UUID) -> dict[tuple[int, int], str]:
    """Values that name the topic; those that were acknowledged, by partition and offset."""
    acknowledged: dict[tuple[int, int], str] = {}
    failures: list[str] = []

    def settled(error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None:
            failures.append(str(error))
        elif partition is not None and offset is not None and value is not None:
            acknowledged[partition, offset] = value.decode()

    producer = Producer(
        {
            "bootstrap.servers": target.cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200,
            # This producer knows nothing of the former topic; it retries requests to a broker that lags.
            "topic.metadata.refresh.fast.interval.ms": 100,
            "topic.metadata.propagation.max.ms": 60_000,
        }
    )
    for number in range(_VALUES_COUNT):
        value = f"{topic_id}:{number}".encode()
        producer.produce(RECREATED_TOPIC, value, partition=number % _PARTITIONS_COUNT, on_delivery=settled)
    left_count = producer.flush(_WRITTEN_WITHIN_S)
    if failures or left_count:
        outcome = f"{len(failures)} failed ({failures[:1]}), {left_count} not settled"
        target.clients.problems.append(f"of {_VALUES_COUNT} writes to the topic {topic_id}: {outcome}")
    return acknowledged


def _check_all(target: Target, topic_id: UUID, written: dict[tuple[int, int], str]) -> None:
    """Every partition at its leader, from the beginning: all acknowledged values, and none of another topic."""
    found: dict[tuple[int, int], str] = {}
    for index in range(_PARTITIONS_COUNT):
        leader_id = target.cluster.leader_of(RECREATED_TOPIC, index)
        broker = target.cluster.broker(leader_id)
        connection = _connect(broker)
        try:
            answer = _fetch(connection, index, topic_id)
        finally:
            connection.close()
        found |= {(index, offset): value for offset, value in answer}
    problems = target.clients.problems
    lost = written.items() - found.items()
    if lost:
        problems.append(f"{len(lost)} acknowledged records of the topic {topic_id} are lost: {sorted(lost)[:3]}")
    foreign = [value for value in found.values() if not value.startswith(f"{topic_id}:")]
    if foreign:
        problems.append(f"{len(foreign)} records of other topics are in the topic {topic_id}: {foreign[:3]}")


def _check_disks(target: Target, former_id: UUID) -> None:
    """No live log has bytes of the former topic."""
    for broker in target.cluster.brokers.values():
        for path in sorted(broker.data_dir.glob(f"{RECREATED_TOPIC}-?/*{LOG_SUFFIX}")):
            if str(former_id).encode() in path.read_bytes():
                target.clients.problems.append(f"{path} has records of the topic {former_id}, which was deleted")


class _Readers:
    """Read from every broker, each in its own thread.  `made`: the topics in the order of their creation."""

    def __init__(self, brokers: Iterable[RunningBroker]) -> None:
        self.made: list[UUID] = []
        self.problems: list[str] = []
        self.read_count = 0
        self._seen: set[UUID] = set()
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._threads = [threading.Thread(target=self._read_on, args=(broker,), daemon=True) for broker in brokers]

    def wait_until_read(self, topic_id: UUID) -> None:
        try:
            eventually(lambda: topic_id in self._seen)
        except AssertionError:
            raise FaultWithoutEffect(f"no reader could read from the topic {topic_id}") from None

    def __enter__(self) -> _Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        for thread in self._threads:
            thread.join()

    def _read_on(self, broker: RunningBroker) -> None:
        while not self._is_stopped.wait(_ASK_AGAIN_S):
            with suppress(ClientError):
                connection = _connect(broker)
                try:
                    while not self._is_stopped.wait(_READ_EVERY_S):
                        self._read(broker, connection)
                finally:
                    connection.close()

    def _read(self, broker: RunningBroker, connection: Connection) -> None:
        known_id = _topic_id(connection)
        for index in range(_PARTITIONS_COUNT):
            if known_id is not None:
                self._judge(broker, index, known_id, _fetch(connection, index, known_id), is_by_id=True)
                self._judge(broker, index, known_id, _fetch(connection, index, None), is_by_id=False)
            # Also of deleted topics: a client that was away for long requests them.
            for former_id in list(self.made):
                self._judge(broker, index, former_id, _fetch(connection, index, former_id), is_by_id=True)

    def _judge(
        self, broker: RunningBroker, index: int, topic_id: UUID, records: Sequence[tuple[int, str]], *, is_by_id: bool
    ) -> None:
        written_to = {UUID(value.partition(":")[0]) for _, value in records}
        made = list(self.made)
        # A topic that is not recorded yet has just been created.
        older = set(made[: made.index(topic_id)]) if topic_id in made else set(made)
        wrong = written_to - {topic_id} if is_by_id else written_to & older
        with self._lock:
            self.read_count += bool(records)
            self._seen |= written_to
            if wrong:
                asked = f"{RECREATED_TOPIC}-{index} {'by the id' if is_by_id else 'by name, when it knew'} {topic_id}"
                self.problems.append(f"broker {broker.node_id}, asked for {asked}, gave records of {wrong}")


def _connect(broker: RunningBroker) -> Connection:
    return Connection.open(Address(broker.host, broker.port), dial_tcp, _OPTIONS, _CLOCK, _deadline())


def _topic_id(connection: Connection) -> UUID | None:
    """The current metadata of this broker."""
    request = MetadataRequest([MetadataRequestTopic(name=RECREATED_TOPIC)], allow_auto_topic_creation=False)
    response = connection.call(ApiKey.METADATA, request, MetadataResponse, _deadline(), at_least=_IDS_FROM)
    (topic,) = response.topics
    return None if topic.error_code or topic.topic_id == ZERO_UUID else topic.topic_id


def _fetch(connection: Connection, index: int, topic_id: UUID | None) -> list[tuple[int, str]]:
    """(offset, value) from the start, by the id or by the name; nothing where the broker answers an error."""
    version = _BY_NAME if topic_id is None else _BY_ID
    wanted = [FetchPartition(index, fetch_offset=0, partition_max_bytes=_READ_BYTES_MAX)]
    topic = FetchTopic(RECREATED_TOPIC, topic_id or ZERO_UUID, wanted)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_READ_BYTES_MAX, topics=[topic])
    connection.send(ApiKey.FETCH, version, [encode_request(ApiKey.FETCH, version, request)], _deadline())
    _, body = connection.receive(_deadline())
    response = connection.decode(ApiKey.FETCH, version, body, FetchResponse)
    return [
        (record.offset, (record.value or b"").decode())
        for answered in response.responses
        for data in answered.partitions
        if not data.error_code
        for batch in split_batches(memoryview(data.records or b""))
        for record in decode_batch(batch)
    ]


def _deadline() -> Deadline:
    return Deadline(_CLOCK, _CALL_TIMEOUT_MS)
