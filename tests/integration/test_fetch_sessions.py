"""Fetch sessions (KIP-227) over raw requests: each rule the same on Apache Kafka and here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

import pytest

from ottla.client.admin.admin import HIGH_WATERMARK, Admin
from ottla.client.fetching.offsets import LATEST, list_offsets
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.integration.raw_peer import RawPeer

NOT_FOUND, WRONG_EPOCH = ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH
UNKNOWN, OUT_OF_RANGE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE
UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_ID
NO_SUCH_ID = 123_456_789


class Part(NamedTuple):
    """One partition of a response."""

    partition: int
    error_code: int = 0
    high_watermark: int = 0
    log_start: int = 0
    has_records: bool = False


class Reader:
    """A client that keeps the session's id and epoch, unless a test gives others."""

    def __init__(self, bootstrap: str, topic: str, topic_id: UUID, version: int) -> None:
        self.topic = topic
        # Named by it from version 13 on.
        self.topic_id = topic_id
        self.version = version
        self.peer = RawPeer(parse_bootstrap(bootstrap)[0])
        self.session_id = self.epoch = 0

    def ask(
        self,
        *wanted: tuple[int, int],
        forgotten: tuple[int, ...] = (),
        epoch: int | None = None,
        session_id: int | None = None,
        wait_ms: int = 0,
    ) -> None:
        rows = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20) for index, offset in wanted]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=[FetchTopic(self.topic, self.topic_id, rows)] if rows else [],
            forgotten_topics_data=[ForgottenTopic(self.topic, self.topic_id, list(forgotten))] if forgotten else [],
        )
        self.peer.ask(ApiKey.FETCH, self.version, request)

    def answer(self) -> FetchResponse:
        _, response = self.peer.answer(ApiKey.FETCH, self.version)
        assert isinstance(response, FetchResponse)
        return response

    def parts(self) -> set[Part]:
        """Those of an answer without error, which the session counts."""
        response = self.answer()
        assert response.error_code == 0
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return {
            Part(
                each.partition_index,
                each.error_code,
                each.high_watermark,
                each.log_start_offset,
                bool(each.records),
            )
            for topic in response.responses
            for each in topic.partitions
        }

    def begin(self, *wanted: tuple[int, int]) -> set[Part]:
        self.ask(*wanted)
        return self.parts()

    def refusal(self) -> tuple[int, int, int]:
        response = self.answer()
        return response.error_code, response.session_id, len(response.responses)


def produce(cluster: Cluster, topic: str, index: int) -> None:
    with RawProducer(cluster) as producer:
        producer.send(TopicPartition(topic, index), build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]), 1)
        producer.flush()


@pytest.fixture
def topic(cluster: Cluster, new_topic: NewTopicName) -> str:
    """Three partitions, one record in the first."""
    name = new_topic(3)
    names = [TopicPartition(name, index) for index in range(3)]
    # Apache Kafka answers the creation before its partitions can be read; this call waits for them.
    list_offsets(cluster, dict.fromkeys(names, LATEST))
    produce(cluster, name, 0)
    return name


@pytest.fixture(params=[7, 12, 17])
def reader(bootstrap: str, cluster: Cluster, topic: str, request: pytest.FixtureRequest) -> Iterator[Reader]:
    (described,) = Admin(cluster).describe_topics([topic])
    made = Reader(bootstrap, topic, described.topic_id, request.param)
    with made.peer:
        yield made


def test_first_response_has_every_partition_and_later_ones_only_changed_ones(reader: Reader, cluster: Cluster) -> None:
    first = reader.begin((0, 0), (1, 0), (2, 0))
    assert first == {Part(0, high_watermark=1, has_records=True), Part(1), Part(2)}
    assert reader.session_id > 0
    reader.ask((0, 1))
    assert reader.parts() == set()
    produce(cluster, reader.topic, 2)
    reader.ask()
    assert reader.parts() == {Part(2, high_watermark=1, has_records=True)}
    # Records that were sent and not fetched past are sent again.
    reader.ask()
    assert reader.parts() == {Part(2, high_watermark=1, has_records=True)}
    reader.ask((2, 1))
    assert reader.parts() == set()


def test_moved_log_start_is_reported_once(reader: Reader, cluster: Cluster) -> None:
    produce(cluster, reader.topic, 1)
    reader.begin((0, 1), (1, 1))
    Admin(cluster).delete_records({TopicPartition(reader.topic, 1): HIGH_WATERMARK})
    reader.ask()
    assert reader.parts() == {Part(1, high_watermark=1, log_start=1)}
    reader.ask()
    assert reader.parts() == set()


def test_partitions_come_and_go_within_a_session(reader: Reader, cluster: Cluster) -> None:
    reader.begin((1, 0))
    reader.ask((0, 0))
    assert reader.parts() == {Part(0, high_watermark=1, has_records=True)}
    reader.ask(forgotten=(0, 2))
    assert reader.parts() == set()
    produce(cluster, reader.topic, 0)
    produce(cluster, reader.topic, 1)
    reader.ask()
    assert reader.parts() == {Part(1, high_watermark=1, has_records=True)}
    # A partition that one request both adds and forgets is forgotten.
    reader.ask((0, 0), forgotten=(0,))
    assert reader.parts() == {Part(1, high_watermark=1, has_records=True)}


def test_errors_are_in_every_response_until_they_end(reader: Reader) -> None:
    unknown, out_of_range = Part(9, UNKNOWN, -1, -1), Part(0, OUT_OF_RANGE, -1, -1)
    assert reader.begin((0, 5), (1, 0), (9, 0)) == {out_of_range, Part(1), unknown}
    for _ in range(2):
        reader.ask()
        assert reader.parts() == {out_of_range, unknown}
    reader.ask((0, 1))
    assert reader.parts() == {Part(0, high_watermark=1), unknown}
    reader.ask(forgotten=(9,))
    assert reader.parts() == set()


@pytest.mark.parametrize("shift", [-1, 1, 7])
def test_any_epoch_but_the_next_is_refused_and_the_session_continues(reader: Reader, shift: int) -> None:
    reader.begin((1, 0))
    reader.ask()
    assert reader.parts() == set()
    reader.ask((0, 0), epoch=reader.epoch + shift)
    assert reader.refusal() == (WRONG_EPOCH, 0, 0)
    reader.ask()
    assert reader.parts() == set()


@pytest.mark.parametrize(("session_id", "epoch"), [(NO_SUCH_ID, 1), (0, 1), (NO_SUCH_ID, -2)])
def test_unknown_session_is_refused(reader: Reader, session_id: int, epoch: int) -> None:
    reader.ask((0, 0), session_id=session_id, epoch=epoch)
    assert reader.refusal() == (NOT_FOUND, 0, 0)


def test_session_ends_with_epoch_minus_one_and_that_answer_is_full(reader: Reader) -> None:
    reader.begin((0, 1), (1, 0))
    ended = reader.session_id
    reader.ask((0, 1), (1, 0), epoch=-1)
    assert reader.parts() == {Part(0, high_watermark=1), Part(1)}
    assert reader.session_id == 0
    reader.ask(session_id=ended, epoch=1)
    assert reader.refusal() == (NOT_FOUND, 0, 0)


def test_session_ends_when_its_reader_opens_another(reader: Reader) -> None:
    reader.begin((0, 1))
    first, reader.epoch = reader.session_id, 0
    assert reader.begin((1, 0)) == {Part(1)}
    assert reader.session_id not in (0, first)
    reader.ask(session_id=first, epoch=1)
    assert reader.refusal() == (NOT_FOUND, 0, 0)
    reader.ask()
    assert reader.parts() == set()


def test_session_ends_when_everything_is_forgotten(reader: Reader) -> None:
    reader.begin((0, 0), (1, 0))
    ended, epoch = reader.session_id, reader.epoch
    reader.ask(forgotten=(0, 1))
    assert reader.parts() == set()
    assert reader.session_id == 0
    reader.ask(session_id=ended, epoch=epoch + 1)
    assert reader.refusal() == (NOT_FOUND, 0, 0)


def test_session_without_partitions_ends_with_its_next_request(reader: Reader) -> None:
    assert reader.begin() == set()
    assert reader.session_id > 0
    reader.ask()
    assert reader.parts() == set()
    assert reader.session_id == 0


def test_answer_without_a_session_is_full(reader: Reader) -> None:
    for _ in range(2):
        reader.ask((0, 1), (1, 0), session_id=0, epoch=-1)
        assert reader.parts() == {Part(0, high_watermark=1), Part(1)}
        assert reader.session_id == 0


def test_session_outlives_its_connection(reader: Reader, bootstrap: str, cluster: Cluster) -> None:
    reader.begin((0, 1), (1, 0))
    reader.peer.socket.close()
    reader.peer = RawPeer(parse_bootstrap(bootstrap)[0])
    produce(cluster, reader.topic, 1)
    reader.ask()
    assert reader.parts() == {Part(1, high_watermark=1, has_records=True)}
    reader.peer.socket.close()


def test_waiting_session_receives_new_records_and_nothing_else(reader: Reader, cluster: Cluster) -> None:
    reader.begin((0, 1), (1, 0), (2, 0))
    reader.ask(wait_ms=9_000)
    produce(cluster, reader.topic, 1)
    assert reader.parts() == {Part(1, high_watermark=1, has_records=True)}
    reader.ask((1, 1), wait_ms=50)
    assert reader.parts() == set()


def test_request_that_was_overtaken_while_it_waited_is_refused(reader: Reader, bootstrap: str) -> None:
    reader.begin((1, 0))
    reader.ask(wait_ms=1_000)
    late = reader.peer
    reader.epoch += 1
    with late, RawPeer(parse_bootstrap(bootstrap)[0]) as reader.peer:

        def is_overtaken() -> bool:
            """A broker handles connections in any order: before it has the first request it refuses the second."""
            reader.ask()
            response = reader.answer()
            assert response.error_code in (0, WRONG_EPOCH)
            assert not response.responses
            return response.error_code == 0

        eventually(is_overtaken)
        reader.peer = late
        assert reader.refusal() == (WRONG_EPOCH, reader.session_id, 0)


def test_deleted_topic_is_reported_to_the_session_that_reads_it(reader: Reader, cluster: Cluster) -> None:
    reader.begin((0, 1), (1, 0))
    Admin(cluster).delete_topics([reader.topic])
    told: set[int] = set()

    def is_told() -> bool:
        reader.ask()
        told.update(part.partition for part in reader.parts() if part.error_code in (UNKNOWN, UNKNOWN_ID))
        return told == {0, 1}

    eventually(is_told)
