"""Produce: errors per partition, and answers that wait for the stable end."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.net.connection import Connection
from ottla.broker.net.limits import (
    LARGE_REQUEST_BYTES,
    LARGE_REQUESTS_AT_ONCE,
    OPENED_ON_LOOP_BYTES_MAX,
    PIPELINED_PARTITIONS_MAX,
)
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.partitions.partition_table import PartitionTable, Refusal
from ottla.broker.partitions.topic_configs import record_check_of
from ottla.broker.producing import opening_threads
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.coordination.topics_view import NO_TOPICS, PartitionNode, Topic, TopicsView
from ottla.coordination.tree import Lease
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_request_header, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.primitives import RequestBytes
from ottla.protocol.produce import PARTITIONS_AT_ONCE_MAX
from ottla.protocol.schemas.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder, build_batch, stamp_producer
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, read_header
from ottla.records.record import Record
from ottla.records.record_bounds import COMPILED
from ottla.storage.errors import DirectoryOffline
from ottla.storage.log_config import LogConfig
from tests.malformed_batches import SHAPES, malformed_batch
from tests.property.wire_samples import SAMPLE_UUID
from tests.unit.broker.live_brokers import BROKER_EPOCH, live
from tests.unit.broker.served_log import ServedLog, one_record
from tests.unit.broker.turned_loop import TurnedLoop, connected_pair
from tests.unit.storage.logs import truncate_log

NOW_MS = 1_700_000_000_000
# The monotonic clock, by which time-outs go, knows nothing of the wall's.
STARTED_MS = 5_000
OTHER_BROKER = BrokerAddress(NodeId(2), "two.example", 9092, None)
OTHER_LIFE = ReplicaIncarnation(OTHER_BROKER.node_id, BROKER_EPOCH)


class FixedClock:
    """It stands, but for what the machine is suspended."""

    def __init__(self) -> None:
        self.suspended_ms = 0

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return STARTED_MS

    def boottime_ms(self) -> int:
        return STARTED_MS + self.suspended_ms


class Served:
    """A produce handler over logs in memory, and a client's end of one connection."""

    def __init__(self) -> None:
        self.loop = TurnedLoop()
        self.table = PartitionTable()
        self.logs: dict[tuple[str, int], ServedLog] = {}
        self.ready = ReadyConnections(self.loop)  # type: ignore[arg-type]  # the part of a loop that it uses
        # Partitions are led by this one where they are not led here.
        self.hints = LeaderHints(NodeId(1), lambda: self.topics, lambda: live(1, 2), lambda _: [OTHER_BROKER])
        self.topics = NO_TOPICS
        self.lease = Lease(STARTED_MS + 1)
        self.clock = FixedClock()
        self.handler = ProduceHandler(self.table, self.ready, self.clock, self.hints, self.lease)
        self.client, server = connected_pair()
        self.connection = Connection(
            server,
            self.loop,
            self,
            ReceiveBudget(1 << 20),
            1 << 20,
            lambda _: None,
        )
        self.version = 7

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        header = read_request_header(view, position, end)
        self.handler.handle(connection, view, header.body_position, end, header.api_version, header.correlation_id)

    def add(
        self,
        name: str,
        index: int,
        config: LogConfig | None = None,
        on_offline: Callable[[DirectoryOffline], None] = lambda _: None,
    ) -> ServedLog:
        log = self.logs[name, index] = ServedLog(name, index, config=config, on_offline=on_offline)
        self.table.add(log.partition)
        return log

    def send(
        self, *wanted: tuple[str, int, bytes], acks: int = -1, timeout_ms: int = 1_000, in_one_topic: bool = False
    ) -> None:
        topics = [TopicProduceData(name, [PartitionProduceData(index, records)]) for name, index, records in wanted]
        if in_one_topic:
            topics = [TopicProduceData(topics[0].name, [each for topic in topics for each in topic.partition_data])]
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
        body = encode_request(ApiKey.PRODUCE, self.version, request)
        self.client.send(request_frame(ApiKey.PRODUCE, self.version, 9, "test", body))
        self.loop.turn()

    def answers(self) -> list[ProduceResponse]:
        self.loop.turn()
        try:
            data = self.client.recv(1 << 20)
        except BlockingIOError:
            return []
        found = []
        while data:
            (length,) = struct.unpack_from(">i", data)
            _, body_at = read_response_header(ApiKey.PRODUCE, self.version, data, 4, 4 + length)
            response = decode_response(ApiKey.PRODUCE, self.version, data[body_at : 4 + length])
            assert isinstance(response, ProduceResponse)
            found.append(response)
            data = data[4 + length :]
        return found

    def codes(self) -> list[tuple[ErrorCode, int]]:
        """Error and base offset of every partition that was answered since the last call."""
        return [
            (ErrorCode(partition.error_code), partition.base_offset)
            for response in self.answers()
            for topic in response.responses
            for partition in topic.partition_responses
        ]


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.connection.close("the test ended")
    made.client.close()


def batch(records_count: int = 1, timestamp_ms: int = NOW_MS, **options: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(records_count):
        builder.append(timestamp_ms, None, b"value")
    return bytes(builder.build(**options))  # type: ignore[arg-type]  # passed on as they are


def test_produce_is_answered_only_when_its_batch_is_below_the_stable_end(served: Served) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch(2)))
    assert served.codes() == []
    flush = log.begin_flush()
    served.send(("t", 0, batch(3)))
    log.end_flush(flush)
    assert served.codes() == [(ErrorCode.NONE, 0)]
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 2)]


def test_several_produces_are_released_by_one_flush_in_their_order(served: Served) -> None:
    log = served.add("t", 0)
    for _ in range(3):
        served.send(("t", 0, batch(2)))
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 2), (ErrorCode.NONE, 4)]


def test_produce_to_two_partitions_waits_for_both(served: Served) -> None:
    first, second = served.add("a", 0), served.add("b", 0)
    served.send(("a", 0, batch()), ("b", 0, batch()))
    second.become_stable()
    assert served.codes() == []
    first.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 0)]


def test_errors_are_per_partition_and_do_not_hold_the_others_back(served: Served) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch()), ("t", 5, batch()), ("unknown", 0, batch()))
    log.become_stable()
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert served.codes() == [(ErrorCode.NONE, 0), unknown, unknown]


def test_request_with_errors_only_is_answered_at_once(served: Served) -> None:
    served.send(("unknown", 0, batch()))
    assert served.codes() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_partition_whose_log_could_not_be_opened_gives_its_own_error(served: Served) -> None:
    served.table.refuse(TopicPartition("t", 0), Refusal(SAMPLE_UUID, ErrorCode.KAFKA_STORAGE_ERROR))
    served.send(("t", 0, batch()))
    assert served.codes() == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_full_disk_refuses_the_batch_and_the_next_one_is_taken_when_there_is_room(served: Served) -> None:
    log = served.add("t", 0)
    log.disk.faults.fail("write", error=errno.ENOSPC)
    served.send(("t", 0, batch()))
    assert served.codes() == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    served.send(("t", 0, batch()))
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_unknown_acks_are_refused(served: Served, acks: int) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch()), acks=acks)
    assert served.codes() == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    assert log.batches == []


def test_nothing_is_answered_when_acks_is_zero(served: Served) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch()), acks=0)
    log.become_stable()
    assert served.answers() == []
    assert len(log.batches) == 1
    assert not served.connection.is_closed


def test_error_closes_the_connection_when_acks_is_zero(served: Served) -> None:
    served.send(("unknown", 0, batch()), acks=0)
    assert served.connection.is_closed
    assert "UNKNOWN_TOPIC_OR_PARTITION" in served.connection.closed_reason


@pytest.mark.parametrize("records", [b"", b"short", batch() + batch()])
def test_anything_but_one_batch_is_refused(served: Served, records: bytes) -> None:
    served.add("t", 0)
    served.send(("t", 0, records))
    assert served.codes() == [(ErrorCode.INVALID_RECORD, -1)]


def test_batch_above_the_topics_limit_is_refused(served: Served) -> None:
    served.add("t", 0, LogConfig(max_message_bytes=100))
    served.send(("t", 0, batch(10)))
    assert served.codes() == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]


def test_batch_from_the_far_future_is_refused(served: Served) -> None:
    served.add("t", 0)
    served.send(("t", 0, batch(timestamp_ms=NOW_MS + 3_600_001)))
    assert served.codes() == [(ErrorCode.INVALID_TIMESTAMP, -1)]


def test_batch_older_than_the_topic_allows_is_refused(served: Served) -> None:
    served.add("t", 0, LogConfig(message_timestamp_before_max_ms=1_000))
    served.send(("t", 0, batch(timestamp_ms=NOW_MS - 1_001)))
    assert served.codes() == [(ErrorCode.INVALID_TIMESTAMP, -1)]


def test_acks_all_is_refused_when_the_topic_wants_more_replicas_than_there_are(served: Served) -> None:
    log = served.add("t", 0, LogConfig(min_insync_replicas=2))
    served.send(("t", 0, batch()), acks=-1)
    assert served.codes() == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    served.send(("t", 0, batch()), acks=1)
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]


@pytest.mark.parametrize("acks", [-1, 1])
def test_broker_whose_lease_is_over_appends_nothing(served: Served, acks: int) -> None:
    log = served.add("t", 0)
    served.lease.end()
    served.send(("t", 0, batch()), ("unknown", 0, batch()), acks=acks)
    assert served.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 2
    assert log.log.log_end_offset == 0
    served.lease.extend(STARTED_MS + 1)
    served.send(("t", 0, batch()), acks=acks)
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]


def test_lease_is_over_when_the_machine_was_suspended_for_so_long(served: Served) -> None:
    log = served.add("t", 0)
    served.clock.suspended_ms = 1
    served.send(("t", 0, batch()))
    assert served.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert log.log.log_end_offset == 0


def test_pipeline_that_the_end_of_a_lease_cuts_in_two_is_stored_whole_and_in_order(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    log = served.add("t", 0)
    first, second = (batch(producer_id=5, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1))
    served.lease.end()
    served.send(("t", 0, first))
    served.lease.extend(STARTED_MS + 1)
    served.send(("t", 0, second))
    served.send(("t", 0, second))
    assert served.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 3
    served.send(("t", 0, first))
    served.send(("t", 0, second))
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]
    (line,) = [record for record in caplog.records if record.getMessage() == "produce.sequence_refused"]
    assert "producer 5 is not known" in str(vars(line)), "one line for both"


def test_batch_gets_the_brokers_time_when_the_topic_asks_for_it(served: Served) -> None:
    log = served.add("t", 0, LogConfig(message_timestamp_type="LogAppendTime"))
    served.send(("t", 0, batch(timestamp_ms=5)))
    log.become_stable()
    (response,) = served.answers()
    assert response.responses[0].partition_responses[0].log_append_time_ms == NOW_MS
    stored = log.batches[0]
    header = HEADER.unpack_from(stored)
    assert header[5] & 0x08
    assert header[7:9] == (5, NOW_MS)


def test_late_produce_is_told_that_it_timed_out_and_its_flush_answers_nobody(served: Served) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch()), timeout_ms=500)
    partition = served.table.find("t", 0)
    assert partition is not None
    partition.waiting.expire_produces(STARTED_MS + 499)
    assert served.codes() == []
    partition.waiting.expire_produces(STARTED_MS + 500)
    assert served.codes() == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    log.become_stable()
    assert served.codes() == []


def test_waiting_produce_is_told_when_the_log_directory_fails(served: Served) -> None:
    served.add("t", 0)
    served.send(("t", 0, batch()))
    partition = served.table.find("t", 0)
    assert partition is not None
    partition.waiting.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert served.codes() == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_flush_for_a_client_that_went_away_is_harmless(served: Served) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch()))
    served.client.close()
    served.loop.turn()
    assert served.connection.is_closed
    log.become_stable()
    served.loop.turn()


def test_late_produce_is_told_which_of_its_batches_are_stable(served: Served) -> None:
    stable, late = served.add("a", 0), served.add("b", 0)
    served.send(("a", 0, batch()), ("b", 0, batch()), timeout_ms=1_000)
    stable.become_stable()
    assert served.answers() == []
    for key in (("a", 0), ("b", 0)):
        partition = served.table.find(*key)
        assert partition is not None
        partition.waiting.expire_produces(STARTED_MS + 1_000)
    served.ready.send_all()
    assert served.codes() == [(ErrorCode.NONE, 0), (ErrorCode.REQUEST_TIMED_OUT, -1)]
    late.become_stable()
    assert served.answers() == []


@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".timeindex"])
def test_segment_that_cannot_be_rolled_refuses_its_batch_and_no_other(served: Served, suffix: str) -> None:
    failing, other = served.add("a", 0), served.add("b", 0)
    failing.append()
    failing.become_stable()
    failing.partition.update_config(LogConfig(segment_bytes=len(one_record()) + 10), 0)
    failing.disk.faults.fail("create", path_contains=suffix)
    served.send(("a", 0, batch()), ("b", 0, batch()))
    other.become_stable()
    assert served.codes() == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (ErrorCode.NONE, 0)]
    failing.log.check_invariants()


def test_produce_is_answered_when_the_directory_fails_under_its_second_batch(served: Served) -> None:
    def fail_waiting(_: DirectoryOffline) -> None:
        for log in (first, second):
            log.partition.waiting.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    first = served.add("a", 0)
    # A write that cannot be undone takes the directory offline before the append raises.
    second = served.add("b", 0, on_offline=fail_waiting)
    second.disk.faults.fail("write", path_contains=".log")
    second.disk.faults.fail("truncate", path_contains=".log")
    served.send(("a", 0, batch()), ("b", 0, batch()))
    assert served.codes() == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 2
    first.become_stable()
    assert served.answers() == []


def test_duplicate_waits_until_the_batch_that_it_repeats_is_stable(served: Served) -> None:
    log = served.add("a", 0)
    first, second = (batch(producer_id=7, producer_epoch=0, base_sequence=number) for number in range(2))
    served.send(("a", 0, first))
    flush = log.begin_flush()
    served.send(("a", 0, second))
    served.send(("a", 0, first))
    assert served.answers() == []
    log.end_flush(flush)
    assert served.codes() == [(ErrorCode.NONE, 0)], "answers keep their order"
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 0)]


def test_nothing_starts_behind_a_produce_with_very_many_partitions(served: Served) -> None:
    log = served.add("a", 0)
    unknown = [("unknown", index, b"") for index in range(PIPELINED_PARTITIONS_MAX)]
    served.send(("a", 0, batch()), *unknown)
    served.send(("a", 0, batch()))
    assert log.partition.log_end_offset == 1
    log.become_stable()
    served.loop.turn()
    assert log.partition.log_end_offset == 2


def test_failed_produce_without_answers_leaves_a_line_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.send(("unknown", 0, batch()), acks=0)
    assert served.connection.is_closed
    assert [record.getMessage() for record in caplog.records] == ["produce.failed"]


def test_produces_without_answers_on_a_full_disk_leave_no_line_each(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = served.add("t", 0)
    log.disk.faults.fail("write", error=errno.ENOSPC)
    served.send(("t", 0, batch()), acks=0)
    assert served.connection.is_closed
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("cleanup_policy", ["compact", "delete"])
def test_topics_of_the_broker_itself_are_not_produced_to(served: Served, cleanup_policy: str) -> None:
    log = served.add("__consumer_offsets", 0, LogConfig(cleanup_policy=cleanup_policy))
    other = served.add("t", 0)
    served.send(("__consumer_offsets", 0, batch()), ("t", 0, batch()))
    other.become_stable()
    assert served.codes() == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1), (ErrorCode.NONE, 0)]
    assert log.batches == []


@pytest.mark.parametrize("acks", [-1, 1])
def test_partition_that_is_led_elsewhere_takes_no_batch(served: Served, acks: int) -> None:
    log = ServedLog("t", 0, leader_epoch=None)
    served.table.add(log.partition)
    served.send(("t", 0, batch()), acks=acks)
    assert served.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert log.batches == []


def test_requests_with_different_acks_are_answered_in_their_order(served: Served) -> None:
    log = served.add("t", 0)
    for acks in (1, -1, 1):
        served.send(("t", 0, batch()), acks=acks)
    assert served.answers() == []
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]


@pytest.mark.parametrize("acks", [-1, 1])
def test_produce_above_a_truncation_is_sent_to_the_new_leader(served: Served, acks: int) -> None:
    log = served.add("t", 0)
    served.send(("t", 0, batch()), acks=acks)
    truncate_log(log.log, 0)
    served.ready.send_all()
    assert served.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("others_wait", [False, True])
def test_refused_producer_is_given_the_leader_from_version_10_on(
    served: Served, version: int, others_wait: bool
) -> None:
    led_elsewhere = ServedLog("t", 1, leader_epoch=None)
    served.table.add(led_elsewhere.partition)
    here = served.add("t", 0)
    nodes = (
        PartitionNode(i, (), PartitionState(OTHER_BROKER.node_id, LeaderEpoch(8), (OTHER_LIFE,)), 0) for i in range(2)
    )
    served.topics = TopicsView.of(1, {"t": Topic("t", SAMPLE_UUID, tuple(nodes))})
    served.version = version
    served.send(*([("t", 0, batch())] if others_wait else []), ("t", 1, batch()))
    here.become_stable()
    (response,) = served.answers()
    *_, refused = response.responses[-1].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader == (LeaderIdAndEpoch(2, 8) if version >= 10 else LeaderIdAndEpoch())
    assert response.node_endpoints == ([NodeEndpoint(*OTHER_BROKER)] if version >= 10 else [])


def test_producer_whose_leader_changed_while_it_waited_is_given_the_new_one(served: Served) -> None:
    log = served.add("t", 0)
    served.version = 10
    served.send(("t", 0, batch()))
    assert served.answers() == []
    node = PartitionNode(0, (), PartitionState(OTHER_BROKER.node_id, LeaderEpoch(8), (OTHER_LIFE,)), 0)
    served.topics = TopicsView.of(1, {"t": Topic("t", SAMPLE_UUID, (node,))})
    log.partition.waiting.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (response,) = served.answers()
    assert response.responses[0].partition_responses[0].current_leader == LeaderIdAndEpoch(2, 8)
    assert response.node_endpoints == [NodeEndpoint(*OTHER_BROKER)]


@pytest.mark.parametrize(
    ("validation", "codec"),
    [("uncompressed", Codec.NONE), ("all", Codec.NONE), ("all", Codec.ZSTD), ("all", Codec.GZIP)],
    ids=str,
)
def test_records_that_no_client_can_read_are_refused_with_their_number(
    served: Served, validation: str, codec: Codec
) -> None:
    served.version = 8
    log = served.add("t", 0, LogConfig(record_validation=validation))
    served.send(("t", 0, bytes(malformed_batch(codec=codec))))
    [answer] = served.answers()
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in partition.record_errors] == [1]
    assert "record 1 of 3 is malformed" in (partition.error_message or "")
    served.send(("t", 0, batch(2)))
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)], "nothing of it was stored"


@pytest.mark.parametrize(
    ("validation", "codec"), [("none", Codec.NONE), ("none", Codec.ZSTD), ("uncompressed", Codec.ZSTD)], ids=str
)
def test_records_are_stored_as_they_came_where_the_setting_says_so(
    served: Served, validation: str, codec: Codec
) -> None:
    log = served.add("t", 0, LogConfig(record_validation=validation))
    served.send(("t", 0, bytes(malformed_batch(codec=codec))))
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_sound_records_are_taken_with_every_check(served: Served, codec: Codec) -> None:
    log = served.add("t", 0, LogConfig(record_validation="all"))
    made = build_batch([Record(number, NOW_MS, b"k", b"value", (("h", None),)) for number in range(3)], codec)
    served.send(("t", 0, bytes(made)))
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]


@pytest.mark.parametrize("area", SHAPES.values(), ids=SHAPES)
def test_every_malformed_shape_is_refused(served: Served, area: bytes) -> None:
    served.add("t", 0, LogConfig(record_validation="uncompressed"))
    served.send(("t", 0, bytes(malformed_batch(area))))
    assert served.codes() == [(ErrorCode.INVALID_RECORD, -1)]


def test_default_check_is_the_compiled_one_where_it_is_there() -> None:
    assert record_check_of(LogConfig(record_validation="auto")) is COMPILED


async def test_produce_that_may_not_even_wait_leaves_no_work_behind(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.net.large_requests.WAITING_REQUESTS_BYTES_MAX", 0)
    log = served.add("t", 0)
    turns, size_bytes = served.handler._turns, LARGE_REQUEST_BYTES + 1
    async with AsyncExitStack() as served_ones:
        for _ in range(LARGE_REQUESTS_AT_ONCE):
            await served_ones.enter_async_context(turns.turn(ApiKey.PRODUCE, size_bytes))
        served.send(*(("t", 0, batch()) for _ in range(PARTITIONS_AT_ONCE_MAX + 1)), in_one_topic=True)
        await opened(served)
    assert "too many large requests" in served.connection.closed_reason
    assert log.batches == []


OPENED = LogConfig(record_validation="all")
# More than is opened on the event loop.
LARGE_VALUE = random.Random(1).randbytes(OPENED_ON_LOOP_BYTES_MAX) * 4


def large_batch(value: bytes = LARGE_VALUE, *, base_sequence: int | None = None) -> bytes:
    made = build_batch([Record(0, NOW_MS, b"k", value)], Codec.ZSTD)
    if base_sequence is not None:
        stamp_producer(made, 7, 0, base_sequence)
    return bytes(made)


async def opened(served: Served) -> None:
    """Until no batch is in a thread, or waits for one."""
    while tasks := list(served.handler._shared.tasks._tasks):
        await asyncio.wait(tasks)


async def test_large_batch_is_opened_in_a_thread_and_answered(served: Served) -> None:
    log = served.add("t", 0, OPENED)
    served.send(("t", 0, large_batch()))
    assert log.batches == []
    await opened(served)
    assert len(log.batches) == 1
    assert served.codes() == []
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]


async def test_produces_of_a_connection_are_appended_in_their_order_wherever_they_are_opened(served: Served) -> None:
    log = served.add("t", 0, OPENED)
    served.send(("t", 0, large_batch(base_sequence=0)))
    served.send(("t", 0, batch(producer_id=7, producer_epoch=0, base_sequence=1)))
    served.send(("t", 0, large_batch(base_sequence=2)))
    await opened(served)
    served.loop.turn()
    await opened(served)
    # The second and the third did not wait for the flush of the first.
    assert len(log.batches) == 3
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]


@pytest.mark.parametrize("in_one_topic", [False, True])
async def test_request_continues_after_a_batch_that_was_opened_in_a_thread(served: Served, in_one_topic: bool) -> None:
    """Each batch reaches its own partition, and each answer is in its place."""
    served.version = 8
    for index in range(5):
        served.add("t", index, OPENED)
    served.add("u", 0)
    garbage = bytearray(large_batch())
    garbage[BATCH_OVERHEAD_BYTES + 20 :] = bytes(len(garbage) - BATCH_OVERHEAD_BYTES - 20)
    CRC.pack_into(garbage, CRC_AT, crc32c(memoryview(garbage)[ATTRIBUTES_AT:]))
    wanted = [batch(1), large_batch(), bytes(garbage), large_batch(LARGE_VALUE[1:]), batch(3)]
    others = [] if in_one_topic else [("missing", 0, batch()), ("u", 0, batch())]
    served.send(*(("t", index, each) for index, each in enumerate(wanted)), *others, in_one_topic=in_one_topic)
    await opened(served)
    for log in served.logs.values():
        log.become_stable()
    refused, missing = ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [code for code, _ in served.codes()] == [0, 0, refused, 0, 0, *([] if in_one_topic else [missing, 0])]
    stored = [[bytes(each[BATCH_OVERHEAD_BYTES:]) for each in log.batches] for log in served.logs.values()]
    expected = [[each[BATCH_OVERHEAD_BYTES:]] for each in wanted]
    expected[2] = []
    assert stored == [*expected, [] if in_one_topic else [batch()[BATCH_OVERHEAD_BYTES:]]]


async def test_batch_of_a_partition_that_was_deleted_meanwhile_is_not_appended_to_the_next(served: Served) -> None:
    for index in range(2):
        served.add("t", index, LogConfig(compression_type="snappy"))
    served.send(("t", 0, large_batch()), ("t", 1, batch(2)), in_one_topic=True)
    served.table.remove(served.logs["t", 0].partition.topic_partition)
    await opened(served)
    served.logs["t", 1].become_stable()
    assert [code for code, _ in served.codes()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    (stored,) = served.logs["t", 1].batches
    assert read_header(memoryview(stored)).records_count == 2


async def test_settings_that_changed_while_a_batch_was_opened_are_in_force(served: Served) -> None:
    log = served.add("t", 0, OPENED)
    served.send(("t", 0, large_batch()))
    log.partition.update_config(LogConfig(compression_type="uncompressed"), NOW_MS)
    await opened(served)
    log.become_stable()
    assert served.codes() == [(ErrorCode.NONE, 0)]
    (stored,) = log.batches
    assert read_header(memoryview(stored)).codec == Codec.NONE


async def test_batch_of_a_connection_that_closed_is_not_appended(served: Served) -> None:
    log = served.add("t", 0, OPENED)
    served.send(("t", 0, large_batch()))
    served.connection.close("the test closes it")
    await opened(served)
    assert log.batches == []


async def test_broker_that_lost_its_lease_meanwhile_appends_nothing(served: Served) -> None:
    log = served.add("t", 0, OPENED)
    served.send(("t", 0, large_batch()))
    served.clock.suspended_ms = 1
    await opened(served)
    assert served.codes() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert log.batches == []


async def test_refused_batch_of_a_produce_without_answers_closes_the_connection(served: Served) -> None:
    served.add("t", 0, replace(OPENED, compression_type="snappy", max_message_bytes=30_000))
    served.send(("t", 0, large_batch()), acks=0)
    await opened(served)
    assert served.connection.is_closed


async def test_batch_that_no_thread_has_time_for_is_sent_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_threads, "WAITING_BATCHES_BYTES_MAX", 0)
    served.version = 8
    log = served.add("t", 0, OPENED)
    lane = served.handler._opener._quick
    await lane.take(1, served.connection)
    served.send(("t", 0, large_batch()))
    await opened(served)
    [answer] = served.answers()
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "send it again" in (partition.error_message or "")
    assert log.batches == []
    lane.give()
    served.send(("t", 0, large_batch()))
    await opened(served)
    assert len(log.batches) == 1
