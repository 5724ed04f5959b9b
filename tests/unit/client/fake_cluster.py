"""Brokers in memory, on a network that loses what a test chooses.  No sockets, no waiting: time is turned.

A request is processed when a caller waits for its answer, so several can be in flight, and a fault can hit any of them.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeVar
from uuid import UUID

from typing_extensions import Buffer

from ottla.client.fetching.offsets import EARLIEST
from ottla.client.wire.address import Address
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import Readable, wait_readable
from ottla.client.wire.wake_up import WakeUp
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import read_request_header, response_frame
from ottla.protocol.messages import decode_request, encode_response
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from ottla.protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.schemas.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.schemas.init_producer_id import InitProducerIdResponse
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest
from ottla.records.end_marker import read_end_marker
from ottla.records.header import BASE_OFFSET, BatchHeader, read_header
from ottla.records.record import Record, decode_batch
from ottla.testing.fake_clock import FakeClock
from tests.unit.client.fake_sasl import FakeSasl

R = TypeVar("R", bound=Readable)
PORT: Final = 9092


class Fault(Enum):
    """What happens to a request: its connection is cut before or after the broker does it, or it is never answered."""

    CUT_BEFORE = 1
    CUT_AFTER = 2
    SILENCE = 3


@dataclass
class FakePartition:
    """A log as a list of batches, with the rules for numbers of idempotent producers (KIP-98)."""

    leader_id: int
    leader_epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    numbers: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    batch_bytes_max: int | None = None

    def append(self, batch: bytearray) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        if self.batch_bytes_max is not None and len(batch) > self.batch_bytes_max:
            return ErrorCode.RECORD_LIST_TOO_LARGE, -1
        if header.producer_id >= 0:
            known = self.numbers.setdefault(header.producer_id, deque(maxlen=5))
            if header.producer_epoch != self.epochs.setdefault(header.producer_id, header.producer_epoch):
                # The numbers of another epoch start again.
                self.epochs[header.producer_id] = header.producer_epoch
                known.clear()
            last = header.base_sequence + header.last_offset_delta
            for first, known_last, base_offset in known:
                if (first, known_last) == (header.base_sequence, last):
                    return ErrorCode.NONE, base_offset
            if known and header.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((header.base_sequence, last, self.end))
        return ErrorCode.NONE, self._store(batch, header)

    def append_marker(self, batch: bytearray) -> None:
        """The end of a transaction."""
        self._store(batch, read_header(batch))

    def aborted(self, first_offset: int) -> list[AbortedTransaction]:
        """The transactions that end at this offset or later."""
        found: list[AbortedTransaction] = []
        firsts: dict[int, int] = {}
        for data in self.batches:
            batch = memoryview(data)
            header = read_header(batch)
            if header.is_control:
                marker, first = read_end_marker(batch), firsts.pop(header.producer_id, None)
                is_aborted = marker is not None and not marker.commits
                if is_aborted and first is not None and header.base_offset >= first_offset:
                    found.append(AbortedTransaction(header.producer_id, first))
            elif header.is_transactional:
                firsts.setdefault(header.producer_id, header.base_offset)
        return found

    def _store(self, batch: bytearray, header: BatchHeader) -> int:
        base_offset = self.end
        BASE_OFFSET.pack_into(batch, 0, base_offset)
        self.batches.append(bytes(batch))
        self.end += header.last_offset_delta + 1
        return base_offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_batch(memoryview(batch))]


class FakeTransport:
    """The client's end of a connection to one fake broker."""

    _numbers: Final = itertools.count(1000)

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.requests: deque[bytes] = deque()
        # What the broker does not read.
        self.unsent = bytearray()
        self.answers = bytearray()
        # Answers that are on their way, and when each arrives.
        self.arriving: deque[tuple[int, bytes]] = deque()
        self.is_cut = False
        self.is_closed = False
        self._number = next(self._numbers)
        self._reached_at_ms = broker.cluster.clock.monotonic_ms() + broker.silent_address_ms

    def connect(self, deadline: Deadline) -> None:
        clock = self.broker.cluster.clock
        wait_ms = max(0, self._reached_at_ms - clock.monotonic_ms())
        if self.broker.is_unreachable or deadline.remaining_ms < wait_ms:
            clock.advance(round(deadline.remaining_ms))
            raise CallTimedOut(f"no connection to {self.broker.address} yet")
        clock.advance(wait_ms)

    def connect_wait_ms(self) -> float:
        wait_ms = self._reached_at_ms - self.broker.cluster.clock.monotonic_ms()
        return wait_ms if wait_ms > 0 else math.inf

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        if self.is_cut:
            raise ConnectionLost("the connection was cut")
        self.unsent += b"".join(bytes(piece) for piece in pieces)
        self.finish_sending(deadline)

    @property
    def can_send(self) -> bool:
        return ApiKey(int.from_bytes(self.unsent[4:6], "big")) not in self.broker.unread_apis

    def finish_sending(self, deadline: Deadline) -> None:
        if self.is_cut:
            raise ConnectionLost("the connection was cut")
        if not self.unsent:
            return
        if not self.can_send:
            self.broker.cluster.clock.advance(round(deadline.remaining_ms))
            raise CallTimedOut("the broker does not read")
        self.requests.append(bytes(self.unsent))
        self.unsent.clear()

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        self.broker.work(self)
        if not self.answers:
            if self.is_cut:
                raise ConnectionLost("the connection was cut")
            if not deadline.has_passed:
                self.wait(int(deadline.remaining_ms) + 1)
        if not self.answers:
            raise CallTimedOut("nothing came")
        count = min(len(buffer), len(self.answers))
        buffer[:count] = self.answers[:count]
        del self.answers[:count]
        return count

    def wait(self, limit_ms: int) -> None:
        """Turn time until an answer arrives, at most by `limit_ms`."""
        clock = self.broker.cluster.clock
        # They arrive in their order.
        first = [self.arriving[0][0] - clock.monotonic_ms()] if self.arriving else []
        clock.advance(min([limit_ms, *first]))
        self.take_arrived()

    def take_arrived(self) -> None:
        while self.arriving and self.arriving[0][0] <= self.broker.cluster.clock.monotonic_ms():
            self.answers += self.arriving.popleft()[1]

    def has_buffered(self) -> bool:
        return bool(self.answers)

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        self.is_closed = True


class TransactionalRequests(Protocol):
    """What the coordinators of transactions do with requests: `fake_transactions` has them."""

    def answer(self, version: int, request: object) -> object | None: ...

    def check_produce(self, version: int, request: ProduceRequest, partition: TopicPartition) -> ErrorCode: ...


class FakeBroker:
    """Answers what the client core asks; `faults` and `errors` hold what goes wrong next, by API."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.address = Address(f"broker-{node_id}", PORT)
        self.is_down = False
        # As a machine that has vanished: it neither accepts a connection nor refuses it.
        self.is_unreachable = False
        # It reads no such requests from its connections, nor what follows them.
        self.unread_apis: set[ApiKey] = set()
        # So long the first IP address of its host is tried, of which nothing comes.
        self.silent_address_ms = 0
        # So long an answer is on its way.
        self.delay_ms = 0
        # Responses to fetches come in pieces of this size, with this time between two of them.
        self.fetch_piece_bytes = 1 << 30
        self.fetch_piece_ms = 0
        # It knows the other brokers, and no topics.
        self.is_behind = False
        # It knows of later leaders, with these epochs, than the others do.
        self.later_epochs: dict[TopicPartition, int] = {}
        # As Apache Kafka: a batch that has no room is left out, but for the answer's first.
        self.leaves_cut_batches_out = False
        self.versions = dict(API_VERSIONS)
        # The levels that the cluster has finalized.
        self.features: dict[str, int] = {}
        # Its logins; without it no request asks for one.
        self.sasl: FakeSasl | None = None
        self.connections: list[FakeTransport] = []
        self.seen: list[tuple[ApiKey, int]] = []
        self.fault_of: Callable[[ApiKey], Fault | None] = lambda api: None
        self.error_of: Callable[[ApiKey, TopicPartition], ErrorCode | None] = lambda api, partition: None

    def work(self, connection: FakeTransport) -> None:
        while connection.requests and not connection.is_cut:
            self._work_on(connection, connection.requests.popleft())
        connection.take_arrived()

    def stop(self) -> None:
        self.is_down = True
        for connection in self.connections:
            connection.is_cut = True

    def _work_on(self, connection: FakeTransport, frame: bytes) -> None:
        header = read_request_header(frame, 4, len(frame))
        api = ApiKey(header.api_key)
        self.seen.append((api, header.api_version))
        fault = self.fault_of(api)
        if fault is Fault.CUT_BEFORE:
            connection.is_cut = True
            return
        sent = memoryview(frame)[header.body_position :]
        answer: tuple[int, object] | None
        if self.sasl is not None and api in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            answer = self._answer_login(connection, api, header.api_version, sent)
        else:
            answer = self._answer(api, header.api_version, sent)
        if fault is Fault.CUT_AFTER:
            connection.is_cut = True
        elif fault is None and answer is not None:
            version, message = answer
            body = encode_response(api, version, message)
            frame = response_frame(api, version, header.correlation_id, body)
            arrives_ms = self.cluster.clock.monotonic_ms() + self.delay_ms
            piece_bytes = self.fetch_piece_bytes if api is ApiKey.FETCH else len(frame)
            for start in range(0, len(frame), piece_bytes):
                connection.arriving.append((arrives_ms, bytes(frame[start : start + piece_bytes])))
                arrives_ms += self.fetch_piece_ms

    def _answer(self, api: ApiKey, version: int, body: memoryview) -> tuple[int, object] | None:
        if api is ApiKey.API_VERSIONS:
            return self._api_versions(version)
        request = decode_request(api, version, body)
        if isinstance(request, MetadataRequest):
            return version, self.cluster.metadata(request, not self.is_behind, self.later_epochs)
        if isinstance(request, ProduceRequest):
            produced = self._produce(version, request)
            return (version, produced) if request.acks else None
        if isinstance(request, FetchRequest):
            return version, self._fetch(version, request)
        if isinstance(request, ListOffsetsRequest):
            return version, self._list_offsets(request)
        if isinstance(request, DeleteRecordsRequest):
            return version, self._delete_records(request)
        if isinstance(request, CreatePartitionsRequest):
            return version, self._create_partitions(request)
        if isinstance(request, DescribeConfigsRequest):
            return version, self._describe_configs(request)
        if self.cluster.on_transactional is not None:
            response = self.cluster.on_transactional.answer(version, request)
            if response is not None:
                return version, response
        assert api is ApiKey.INIT_PRODUCER_ID
        return version, InitProducerIdResponse(producer_id=next(self.cluster.producer_ids))

    def _answer_login(
        self, connection: FakeTransport, api: ApiKey, version: int, body: memoryview
    ) -> tuple[int, object]:
        assert self.sasl is not None
        request = decode_request(api, version, body)
        if isinstance(request, SaslHandshakeRequest):
            return version, self.sasl.handshake(connection, request)
        assert isinstance(request, SaslAuthenticateRequest)
        return version, self.sasl.authenticate(connection, request)

    def _api_versions(self, version: int) -> tuple[int, ApiVersionsResponse]:
        rows = [ApiVersion(api, lowest, highest) for api, (lowest, highest) in self.versions.items()]
        if version in self.versions[ApiKey.API_VERSIONS]:
            features = [FinalizedFeatureKey(name, level, 0) for name, level in self.features.items()]
            return version, ApiVersionsResponse(api_keys=rows, finalized_features=features)
        own = [row for row in rows if row.api_key == ApiKey.API_VERSIONS]
        return 0, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)

    def _create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        response = CreatePartitionsResponse()
        for topic in request.topics:
            code = self.error_of(ApiKey.CREATE_PARTITIONS, TopicPartition(topic.name, topic.count - 1))
            response.results.append(CreatePartitionsTopicResult(topic.name, code or ErrorCode.NONE))
        return response

    def _describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Of topics, what `FakeCluster.topic_configs` has."""
        response = DescribeConfigsResponse()
        for asked in request.resources:
            code = self.error_of(ApiKey.DESCRIBE_CONFIGS, TopicPartition(asked.resource_name, 0)) or ErrorCode.NONE
            configs = self.cluster.topic_configs.get(asked.resource_name, {})
            rows = [
                DescribeConfigsResourceResult(name, value)
                for name, value in configs.items()
                if asked.configuration_keys is None or name in asked.configuration_keys
            ]
            response.results.append(
                DescribeConfigsResult(code, None, asked.resource_type, asked.resource_name, [] if code else rows)
            )
        return response

    def _problem(self, api: ApiKey, partition: TopicPartition) -> ErrorCode | None:
        known = self.cluster.partitions.get(partition)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known.leader_id != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.error_of(api, partition)

    def _produce(self, version: int, request: ProduceRequest) -> ProduceResponse:
        response = ProduceResponse()
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                partition = TopicPartition(topic.name, data.index)
                code, base_offset = self._problem(ApiKey.PRODUCE, partition) or ErrorCode.NONE, -1
                if not code and self.cluster.on_transactional is not None:
                    code = self.cluster.on_transactional.check_produce(version, request, partition)
                if not code:
                    assert data.records is not None
                    code, base_offset = self.cluster.partitions[partition].append(bytearray(data.records))
                rows.append(PartitionProduceResponse(data.index, code, base_offset))
            response.responses.append(TopicProduceResponse(topic.name, rows))
        return response

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """The earliest offset, that at a time, else the end."""
        response = ListOffsetsResponse()
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = TopicPartition(topic.name, asked.partition_index)
                code = self._problem(ApiKey.LIST_OFFSETS, partition)
                end = -1 if code else self._listed(partition, asked.timestamp)
                if request.isolation_level:
                    end = min(end, self.cluster.open_transactions.get(partition, end))
                epoch = -1 if code else self.cluster.partitions[partition].leader_epoch
                rows.append(
                    ListOffsetsPartitionResponse(
                        asked.partition_index, code or ErrorCode.NONE, offset=end, leader_epoch=epoch
                    )
                )
            response.topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return response

    def _listed(self, partition: TopicPartition, timestamp: int) -> int:
        log = self.cluster.partitions[partition]
        if timestamp >= 0:
            return next((record.offset for record in log.records() if record.timestamp_ms >= timestamp), -1)
        return log.start if timestamp == EARLIEST else log.end

    def _delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        response = DeleteRecordsResponse()
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = TopicPartition(topic.name, asked.partition_index)
                code = self._problem(ApiKey.DELETE_RECORDS, partition)
                if not code:
                    self.cluster.partitions[partition].start = asked.offset
                rows.append(
                    DeleteRecordsPartitionResult(
                        asked.partition_index, -1 if code else asked.offset, code or ErrorCode.NONE
                    )
                )
            response.topics.append(DeleteRecordsTopicResult(topic.name, rows))
        return response

    def _fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        response = FetchResponse()
        is_first = True
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        for topic in request.topics:
            rows = []
            name = topic.topic if version < 13 else names.get(topic.topic_id, "")
            for asked in topic.partitions:
                partition = TopicPartition(name, asked.partition)
                code = self._problem(ApiKey.FETCH, partition) if name else ErrorCode.UNKNOWN_TOPIC_ID
                if code:
                    rows.append(PartitionData(asked.partition, code, -1, records=b""))
                    continue
                log = self.cluster.partitions[partition]
                if not log.start <= asked.fetch_offset <= log.end:
                    rows.append(PartitionData(asked.partition, ErrorCode.OFFSET_OUT_OF_RANGE, -1, records=b""))
                    continue
                wanted = [batch for batch in log.batches if read_header(batch).last_offset >= asked.fetch_offset]
                # Apache Kafka cuts at the limit; before Fetch v3, and for later partitions, in the first batch too.
                records = b"".join(wanted)[: asked.partition_max_bytes]
                if self.leaves_cut_batches_out and wanted and len(records) < len(wanted[0]):
                    records = wanted[0] if is_first else b""
                is_first = False if records else is_first
                row = PartitionData(asked.partition, 0, log.end, log.end, log.start, records=records)
                if request.isolation_level:
                    row.aborted_transactions = log.aborted(asked.fetch_offset)
                rows.append(row)
            response.responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions=rows))
        if not any(row.records or row.error_code for topic in response.responses for row in topic.partitions):
            self.cluster.clock.advance(request.max_wait_ms)  # the long poll
        return response


class FakeCluster:
    """Brokers 1 to `brokers_count`, and the four things that a `Cluster` has of the world."""

    def __init__(self, brokers_count: int = 1) -> None:
        self.clock = FakeClock()
        self.producer_ids = itertools.count(4000)
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(1, brokers_count + 1)}
        self.dialled: list[Address] = []
        self.topic_ids: dict[str, UUID] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        # The error of a topic in metadata.
        self.topic_codes: dict[str, ErrorCode] = {}
        # Where readers of committed records have to wait.
        self.open_transactions: dict[TopicPartition, int] = {}
        self.on_transactional: TransactionalRequests | None = None

    def add_topic(self, topic: str, *leader_ids: int) -> list[TopicPartition]:
        added = [TopicPartition(topic, number) for number in range(len(leader_ids))]
        for partition, leader_id in zip(added, leader_ids, strict=True):
            self.partitions[partition] = FakePartition(leader_id)
        return added

    def recreate_topic(self, topic: str, topic_id: UUID) -> None:
        """Its logs are empty, and it has this id from now on."""
        for partition in [each for each in self.partitions if each.topic == topic]:
            self.partitions[partition] = FakePartition(self.partitions[partition].leader_id)
        self.topic_ids[topic] = topic_id

    def move_leader(self, partition: TopicPartition, leader_id: int) -> None:
        self.partitions[partition].leader_id = leader_id
        self.partitions[partition].leader_epoch += 1

    def client(
        self,
        options: ClientOptions | None = None,
        bootstrap: str | None = None,
        on_wait: Callable[[OttlaError], None] = lambda reason: None,
    ) -> Cluster:
        addresses = bootstrap or ",".join(str(broker.address) for broker in self.brokers.values())
        return Cluster(
            addresses, options, dial=self.dial, clock=self.clock, sleep=self.sleep, wait=self.wait, on_wait=on_wait
        )

    def dial(self, address: Address) -> FakeTransport:
        self.dialled.append(address)
        for broker in self.brokers.values():
            if broker.address == address and not broker.is_down:
                broker.connections.append(FakeTransport(broker))
                return broker.connections[-1]
        raise BrokerUnreachable(f"no broker is at {address}")

    def sleep(self, seconds: float) -> None:
        self.clock.advance(max(1, round(seconds * 1000)))

    def wait(self, streams: Iterable[R], timeout_ms: float) -> list[R]:
        streams = list(streams)
        ready: list[R] = []
        for broker in self.brokers.values():
            for connection in broker.connections:
                if any(stream.fileno() == connection.fileno() for stream in streams):
                    broker.work(connection)
                    if connection.answers or connection.is_cut or (connection.unsent and connection.can_send):
                        ready += [stream for stream in streams if stream.fileno() == connection.fileno()]
        ready += [stream for stream in streams if isinstance(stream, WakeUp) and wait_readable([stream], 0)]
        if not ready:
            self.clock.advance(max(1, round(self._until_arrival(streams, timeout_ms))))
        return ready

    def _until_arrival(self, streams: Iterable[Readable], limit_ms: float) -> float:
        """The time until an answer arrives on one of these; at most `limit_ms`."""
        waited_for = {stream.fileno() for stream in streams}
        arriving = [
            at_ms - self.clock.monotonic_ms()
            for broker in self.brokers.values()
            for connection in broker.connections
            if connection.fileno() in waited_for
            for at_ms, _ in connection.arriving
        ]
        return min([limit_ms, *arriving])

    def metadata(
        self, request: MetadataRequest, knows_topics: bool, later_epochs: Mapping[TopicPartition, int]
    ) -> MetadataResponse:
        names = dict.fromkeys(partition.topic for partition in self.partitions)
        wanted = list(names) if request.topics is None else [topic.name for topic in request.topics]
        up = [broker for broker in self.brokers.values() if not broker.is_down]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(each.node_id, each.address.host, each.address.port) for each in up],
            cluster_id="fake",
            controller_id=up[0].node_id,
            topics=[self._topic(name, knows_topics, later_epochs) for name in wanted if name is not None],
        )

    def _topic(
        self, name: str, knows_topics: bool, later_epochs: Mapping[TopicPartition, int]
    ) -> MetadataResponseTopic:
        mine = {partition.partition: log for partition, log in self.partitions.items() if partition.topic == name}
        if not mine or not knows_topics:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        if name in self.topic_codes:
            return MetadataResponseTopic(self.topic_codes[name], name)
        rows = []
        for number, log in mine.items():
            is_led = log.leader_id in self.brokers and not self.brokers[log.leader_id].is_down
            code = ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE
            epoch = later_epochs.get(TopicPartition(name, number), log.leader_epoch)
            rows.append(MetadataResponsePartition(code, number, log.leader_id if is_led else -1, epoch))
        return MetadataResponseTopic(ErrorCode.NONE, name, self.topic_ids.get(name, ZERO_UUID), partitions=rows)


def script(*steps: Fault | None) -> Callable[[ApiKey], Fault | None]:
    """These faults for the next Produce requests, then none."""
    left = deque(steps)
    return lambda api: left.popleft() if api is ApiKey.PRODUCE and left else None
