"""Fetch: what is answered at once, what waits and what ends the waiting."""

from __future__ import annotations

import errno
import itertools
import socket
from collections.abc import Iterator
from uuid import UUID

import pytest

from ottla.broker.fetching import fetch_session, parked_fetches
from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.fetching.parked_fetches import FetchDeadlines
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.net.connection import Connection
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.coordination.topics_view import NO_TOPICS
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import ReplicaIncarnation
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_request_header, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.primitives import RequestBytes
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.testing.fake_clock import FakeClock
from tests.unit.broker.live_brokers import BROKER_EPOCH, live
from tests.unit.broker.partitions.test_partition_transactions import ABORT, COMMIT, mark
from tests.unit.broker.partitions.test_partition_transactions import produce as produce_in_transaction
from tests.unit.broker.served_log import ServedLog, topic_id_of
from tests.unit.broker.turned_loop import TurnedLoop, connected_pair

VERSION = 11
SIZE_BYTES_MAX = 100_000
OTHER_BROKER = BrokerAddress(NodeId(2), "two.example", 9092, "rack")
OTHER_LIFE = ReplicaIncarnation(OTHER_BROKER.node_id, BROKER_EPOCH)


class Served:
    """A fetch handler over logs of the test, and clients' ends of connections to it."""

    def __init__(self, slots: int = 10) -> None:
        self.loop = TurnedLoop()
        self.table = PartitionTable()
        self.ready = ReadyConnections(self.loop)  # type: ignore[arg-type]  # the part of a loop that it uses
        self.deadlines = FetchDeadlines(self.loop)  # type: ignore[arg-type]  # as above
        self.clock = FakeClock()
        self.session_ids = itertools.count(100)
        self.sessions = FetchSessionCache(slots, lambda: next(self.session_ids))
        # Partitions are led by this one where they are not led here.
        self.hints = LeaderHints(NodeId(1), lambda: self.topics, lambda: live(1, 2), lambda _: [OTHER_BROKER])
        self.topics = NO_TOPICS
        self.handler = FetchHandler(
            self.table, self.ready, self.deadlines, SIZE_BYTES_MAX, self.sessions, self.clock, self.hints
        )
        self.client, self.connection = self.connect()
        self.version = VERSION

    def connect(self) -> tuple[socket.socket, Connection]:
        client, server = connected_pair()
        connection = Connection(
            server,
            self.loop,
            self,
            ReceiveBudget(1 << 24),
            1 << 24,
            lambda _: None,
        )
        return client, connection

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        header = read_request_header(view, position, end)
        self.handler.handle(connection, view, header.body_position, end, header.api_version, header.correlation_id)

    def add(self, name: str, index: int = 0, *, topic_id: UUID | None = None) -> ServedLog:
        log = ServedLog(name, index, leader_epoch=3, topic_id=topic_id)
        self.table.add(log.partition)
        return log

    def partition(self, name: str, index: int = 0) -> Partition:
        found = self.table.find(name, index)
        assert found is not None
        return found

    def ask(self, *wanted: FetchPartition, **options: int) -> None:
        fields = {"max_wait_ms": 1_000, "min_bytes": 1, "max_bytes": 1_000_000, **options}
        self.send(FetchRequest(topics=[topic("t", *wanted)] if wanted else [], **fields))  # type: ignore[arg-type]

    def send(self, request: FetchRequest) -> None:
        body = encode_request(ApiKey.FETCH, self.version, request)
        self.client.send(request_frame(ApiKey.FETCH, self.version, 5, "test", body))
        self.loop.turn()

    def answer(self) -> FetchResponse | None:
        """The next answer, None while there is none."""
        self.loop.turn()
        data = b""
        while True:
            try:
                part = self.client.recv(1 << 20)
            except BlockingIOError:
                break
            if not part:
                break
            data += part
            self.loop.turn()
        if not data:
            return None
        _, position = read_response_header(ApiKey.FETCH, self.version, data, 4, len(data))
        response = decode_response(ApiKey.FETCH, self.version, data[position:])
        assert isinstance(response, FetchResponse)
        return response

    def partitions(self) -> list[PartitionData]:
        response = self.answer()
        assert response is not None, "no answer"
        return [partition for topic in response.responses for partition in topic.partitions]

    def sizes(self) -> list[int]:
        return [len(partition.records or b"") for partition in self.partitions()]


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.connection.close("the test ended")
    made.client.close()


def topic(name: str, *wanted: FetchPartition) -> FetchTopic:
    """By name and by id: the request's version has one of them."""
    return FetchTopic(name, topic_id_of(name), list(wanted))


def at(offset: int, index: int = 0, *, limit: int = 1_000_000, current_leader_epoch: int = -1) -> FetchPartition:
    return FetchPartition(index, current_leader_epoch, offset, partition_max_bytes=limit)


def test_fetch_is_answered_at_once_when_there_are_records(served: Served) -> None:
    size = served.add("t").add()
    served.ask(at(0))
    assert served.sizes() == [size]


@pytest.mark.parametrize("options", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"max_wait_ms": -1}])
def test_fetch_that_may_not_wait_is_answered_empty(served: Served, options: dict[str, int]) -> None:
    served.add("t")
    served.ask(at(0), **options)
    assert served.sizes() == [0]


def test_fetch_of_nothing_is_answered_at_once(served: Served) -> None:
    served.ask()
    assert served.partitions() == []


def test_fetch_waits_for_the_high_watermark_not_for_the_append(served: Served) -> None:
    log = served.add("t")
    served.ask(at(0))
    size = log.add(is_stable=False)
    assert served.answer() is None
    log.become_stable()
    assert served.sizes() == [size]
    assert not served.partition("t").waiting.for_watermark


def test_fetch_is_answered_empty_at_its_deadline_and_not_again_by_later_records(served: Served) -> None:
    log = served.add("t")
    served.ask(at(0), max_wait_ms=300)
    served.loop.advance(0.2)
    assert served.answer() is None
    served.loop.advance(0.11)
    assert served.sizes() == [0]
    log.add()
    assert served.answer() is None


def test_fetch_gets_at_its_deadline_what_there_is_though_less_than_it_asked_for(served: Served) -> None:
    log = served.add("t")
    served.ask(at(0), min_bytes=10_000, max_wait_ms=300)
    size = log.add()
    assert served.answer() is None
    served.loop.advance(0.31)
    assert served.sizes() == [size]


def test_fetch_waits_until_its_partitions_together_have_enough(served: Served) -> None:
    first, second = served.add("t", 0), served.add("t", 1)
    size = first.add()
    served.ask(at(0, 0), at(0, 1), min_bytes=2 * size)
    assert served.answer() is None
    second.add()
    assert served.sizes() == [size, size]


@pytest.mark.parametrize("options", [{"max_bytes": 150}, {"max_bytes": 0}])
def test_fetch_does_not_wait_for_more_bytes_than_its_answer_may_have(served: Served, options: dict[str, int]) -> None:
    size = served.add("t").add()
    served.ask(at(0), min_bytes=1_000_000, **options)
    assert served.sizes() == [min(size, max(150, size))]


def test_fetch_does_not_wait_for_more_bytes_than_the_broker_sends_at_once(served: Served) -> None:
    log = served.add("t")
    for _ in range(SIZE_BYTES_MAX // 100):
        log.add()
    served.ask(at(0), min_bytes=10 * SIZE_BYTES_MAX, max_bytes=2**31 - 1)
    assert served.sizes() == [SIZE_BYTES_MAX]


def test_fetch_does_not_wait_when_more_records_stand_in_a_later_segment(served: Served) -> None:
    log = served.add("t")
    size = log.add()
    log.roll()
    log.add()
    served.ask(at(0, limit=size), min_bytes=10 * size)
    assert served.sizes() == [size]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (at(2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (at(-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (at(2**63 - 1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (at(0, 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (at(0, -7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (at(0, current_leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (at(0, current_leader_epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_error_is_told_at_once_beside_a_partition_that_would_wait(
    served: Served, wanted: FetchPartition, code: ErrorCode
) -> None:
    served.add("t").add()
    served.add("t", 1)
    served.ask(wanted, at(0, 1), min_bytes=1_000)
    assert [partition.error_code for partition in served.partitions()] == [code, 0]


def test_fetch_between_high_watermark_and_log_end_waits_instead_of_failing(served: Served) -> None:
    log = served.add("t")
    log.add(is_stable=False)
    served.ask(at(1))
    assert served.answer() is None
    log.become_stable()
    log.add()
    assert [partition.error_code for partition in served.partitions()] == [0]


def test_reader_above_the_high_watermark_is_told_so_at_its_deadline_and_of_no_lower_one(served: Served) -> None:
    log = served.add("t")
    log.add()
    log.add(is_stable=False)
    served.ask(at(2), max_wait_ms=300)
    served.loop.advance(0.2)
    assert served.answer() is None
    served.loop.advance(0.11)
    assert [(found.error_code, found.high_watermark) for found in served.partitions()] == [
        (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    ]


def test_fetch_is_told_when_the_topic_is_deleted_while_it_waits(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=2**31 - 1)
    served.table.remove(TopicPartition("t", 0))
    assert [found.error_code for found in served.partitions()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_fetch_gets_an_error_when_a_file_cannot_be_read(served: Served) -> None:
    log = served.add("t")
    for _ in range(3):
        log.add(is_stable=False)
    log.become_stable()
    # Of the batches' heads: the middle one's place is in no index.
    log.disk.faults.fail("read", error=errno.EMFILE)
    served.ask(at(1))
    assert [found.error_code for found in served.partitions()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    served.ask(at(1))
    assert [found.error_code for found in served.partitions()] == [0]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_fetch_gets_an_error_for_the_partition_whose_index_cannot_be_loaded(served: Served, suffix: str) -> None:
    log, other = served.add("t"), served.add("t", 1)
    for _ in range(3):
        log.add(is_stable=False)
    log.become_stable()
    other.add()
    log.log.roll(0)
    log.log.segments[0].drop_indexes()
    log.disk.faults.fail("read", path_contains=suffix)
    served.ask(at(1), at(0, 1))
    assert [found.error_code for found in served.partitions()] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    served.ask(at(1), at(0, 1))
    assert [found.error_code for found in served.partitions()] == [0, 0]


def test_failing_file_keeps_no_other_fetch_from_its_records(served: Served) -> None:
    log = served.add("t")
    for _ in range(2):
        log.add(is_stable=False)
    served.ask(at(1))
    failing, other = served.partition("t"), served.client
    served.client, connection = served.connect()
    served.ask(at(1))
    log.add(is_stable=False)
    log.disk.faults.fail("read")
    log.become_stable()
    assert [found.error_code for found in served.partitions()] == [0]
    connection.close("done")
    served.client.close()
    served.client = other
    assert [found.error_code for found in served.partitions()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not failing.waiting.for_watermark


def test_waiting_fetch_leaves_nothing_behind_when_its_client_goes_away(served: Served) -> None:
    log = served.add("t")
    served.ask(*[at(0)] * 400, max_wait_ms=2**31 - 1)
    assert served.handler.parked.partitions_count == 400
    served.client.close()
    served.loop.turn()
    assert served.connection.is_closed
    assert not served.partition("t").waiting.for_watermark
    assert served.handler.parked.partitions_count == 0
    # Only its deadline still knows it, without what it asked for.
    ((_, _, waiting),) = served.deadlines._heap
    assert waiting._plan is None  # type: ignore[attr-defined]  # a ParkedFetch
    log.add()


def test_fetch_is_answered_at_once_when_too_many_partitions_are_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_fetches, "PARKED_PARTITIONS_MAX", 10)
    served.add("t")
    served.ask(*[at(0)] * 10)
    assert served.answer() is None
    first = served.client
    served.client, connection = served.connect()
    served.ask(at(0))
    assert served.sizes() == [0]
    connection.close("done")
    served.client.close()
    served.client = first


def test_all_waiting_fetches_are_answered_when_the_broker_stops(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=2**31 - 1)
    served.connection.drain()
    assert not served.connection.is_closed
    served.deadlines.expire_all()
    assert served.sizes() == [0]
    assert served.connection.is_closed


@pytest.mark.parametrize(
    ("session_id", "session_epoch", "code", "opened"),
    [
        (0, -1, ErrorCode.NONE, 0),
        (0, 0, ErrorCode.NONE, 100),
        (9, -1, ErrorCode.NONE, 0),
        (9, 0, ErrorCode.NONE, 100),
        (9, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
    ],
)
def test_session_is_opened_when_it_is_asked_for(
    served: Served, session_id: int, session_epoch: int, code: ErrorCode, opened: int
) -> None:
    served.add("t").add()
    served.ask(at(0), session_id=session_id, session_epoch=session_epoch)
    response = served.answer()
    assert response is not None
    assert (response.error_code, response.session_id) == (code, opened)
    assert bool(response.responses) == (code == ErrorCode.NONE)


def test_no_session_is_opened_when_there_is_no_room(served: Served) -> None:
    served.add("t")
    for number in range(12):
        served.ask(at(0), max_wait_ms=0, session_epoch=0)
        response = served.answer()
        assert response is not None
        assert response.session_id == (100 + number if number < 10 else 0)
        assert len(response.responses) == 1


def test_waiting_session_of_many_partitions_is_held_by_the_session_and_reads_once_a_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [served.add("t", index) for index in range(50)]
    served.ask(*(at(0, index) for index in range(50)), max_wait_ms=0, session_epoch=0)
    assert len(served.partitions()) == 50
    served.ask(session_id=100, session_epoch=1, min_bytes=700)
    assert served.handler.parked.partitions_count == 1
    reads: list[int] = []
    read_session = FetchSession.read

    def read(session: FetchSession, *arguments: object) -> object:
        reads.append(len(session.candidates))
        return read_session(session, *arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(FetchSession, "read", read)
    sizes = [log.add() for log in logs[:3]]
    assert served.answer() is None
    assert sum(sizes) < 700
    assert reads == [3]
    logs[1].add()
    logs[7].add()
    size = sizes[0]
    assert sorted(served.sizes()) == [size, size, size, 2 * size]
    assert reads == [3, 4]


def test_session_of_a_reader_above_the_high_watermark_is_told_so_each_time_and_goes_on_when_it_is_reached(
    served: Served,
) -> None:
    log = served.add("t")
    log.add(is_stable=False)
    served.ask(at(1), max_wait_ms=0, session_epoch=0)
    assert [found.error_code for found in served.partitions()] == [ErrorCode.OFFSET_NOT_AVAILABLE]
    served.ask(session_id=100, session_epoch=1, max_wait_ms=300)
    assert served.answer() is None
    served.loop.advance(0.31)
    assert [found.error_code for found in served.partitions()] == [ErrorCode.OFFSET_NOT_AVAILABLE]
    served.ask(session_id=100, session_epoch=2, max_wait_ms=300)
    log.become_stable()
    size = log.add()
    assert served.sizes() == [size]


def test_session_waits_though_more_partitions_are_waited_out_than_one_response_reads(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session, "SESSION_READS_MAX", 4)
    logs = [served.add("t", index) for index in range(10)]
    for log in logs:
        log.add(is_stable=False)
    served.ask(*(at(1, index) for index in range(10)), max_wait_ms=0, session_epoch=0)
    assert len(served.partitions()) == 10
    for epoch in (1, 2):
        served.ask(session_id=100, session_epoch=epoch, max_wait_ms=300)
        assert len(served.partitions()) == 4, "others are not read yet"
    refused: set[int] = set()
    for epoch in (3, 4, 5):
        served.ask(session_id=100, session_epoch=epoch, max_wait_ms=300)
        assert served.answer() is None, "all are waited out"
        served.loop.advance(0.31)
        parts = served.partitions()
        assert [part.error_code for part in parts] == [ErrorCode.OFFSET_NOT_AVAILABLE] * 4
        refused.update(part.partition_index for part in parts)
    assert refused == set(range(10)), "each gets its turn"
    served.ask(session_id=100, session_epoch=6, max_wait_ms=300)
    logs[7].become_stable()
    size = logs[7].add()
    assert [part.partition_index for part in served.partitions() if len(part.records or b"") == size] == [7]


def test_waiting_session_leaves_when_its_connection_closes_and_the_session_stays(served: Served) -> None:
    log = served.add("t")
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [0]
    served.ask(session_id=100, session_epoch=1, max_wait_ms=2**31 - 1)
    served.client.close()
    served.loop.turn()
    assert served.handler.parked.partitions_count == 0
    size = log.add()
    served.client, served.connection = served.connect()
    served.ask(session_id=100, session_epoch=2)
    assert served.sizes() == [size]


def test_waiting_session_whose_place_is_taken_is_answered(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [0]
    served.ask(session_id=100, session_epoch=1, max_wait_ms=2**31 - 1)
    assert served.answer() is None
    served.sessions.remove(100)
    response = served.answer()
    assert response is not None
    assert (response.error_code, response.responses) == (0, [])
    assert not served.partition("t").waiting.for_watermark


def test_replica_continues_no_session(served: Served) -> None:
    served.add("t")
    served.ask(at(0), max_wait_ms=0, session_epoch=0)
    assert served.sizes() == [0]
    served.ask(session_id=100, session_epoch=1, replica_id=1)
    response = served.answer()
    assert response is not None
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_in_the_name_of_a_replica_is_refused(served: Served) -> None:
    served.add("t").add()
    served.ask(at(0), replica_id=1)
    assert [found.error_code for found in served.partitions()] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(("isolation_level", "aborted"), [(0, None), (1, [])])
def test_readers_of_committed_records_get_a_list_of_aborted_transactions(
    served: Served, isolation_level: int, aborted: list[object] | None
) -> None:
    served.add("t").add()
    served.ask(at(0), isolation_level=isolation_level)
    (found,) = served.partitions()
    assert found.aborted_transactions == aborted
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (1, 1, 0)


def test_reader_of_committed_records_waits_at_an_open_transaction_for_its_marker(served: Served) -> None:
    log = served.add("t")
    produce_in_transaction(log, 0)
    mark(log, ABORT, 1)
    produce_in_transaction(log, 0, 1)
    log.become_stable()
    sizes_bytes = [len(batch) for batch in log.batches]
    served.ask(at(0), isolation_level=1)
    (found,) = served.partitions()
    assert (found.high_watermark, found.last_stable_offset, len(found.records or b"")) == (3, 2, sum(sizes_bytes[:2]))
    assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()] == [(7, 0)]
    served.ask(at(2), isolation_level=1)
    log.add()
    assert served.answer() is None
    mark(log, COMMIT, 2)
    assert served.answer() is None
    log.become_stable()
    (found,) = served.partitions()
    assert (found.last_stable_offset, found.aborted_transactions) == (5, [])
    served.ask(at(2))
    assert served.sizes() == [sum(len(batch) for batch in log.batches[2:])]


def test_fetch_behind_a_waiting_one_starts_when_that_is_answered(served: Served) -> None:
    log = served.add("t")
    served.ask(at(0))
    served.ask(at(0))
    log.add()
    served.loop.turn()
    data = served.client.recv(1 << 20)
    first_bytes = 4 + int.from_bytes(data[:4], "big")
    assert len(data) == 2 * first_bytes
