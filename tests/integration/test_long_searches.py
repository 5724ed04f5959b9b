"""Searches by time through full segments: no turn of the loop is long while indexes are loaded or rebuilt.

A turn is measured as in test_large_frames.py.  The segments are filled beside a stopped broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.handlers.list_offsets import MAX_TIMESTAMP
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.api_versions import ApiVersionsRequest
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import ATTRIBUTES_AT, CRC, CRC_AT, HEADER, read_header
from ottla.records.record import Record
from ottla.runtime.clock import SystemClock
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.broker import RunningBroker
from tests.integration.raw_peer import RawPeer
from tests.timed_broker import TurnTimes

TURN_MS_MAX = 20.0
# Entries of an index that is loaded; a full index of a 1 GiB segment has 262,144.
ENTRIES = 150_000
PACKED_RECORDS = 100_000
START_MS = 1_767_225_600_000
FULL, UNORDERED, PACKED = "full", "unordered", "packed"
# Some for searches, some for fetches; the last one has lost its index files.
SEARCHED, FETCHED = (0, 1), (2, 3)
FULL_SEGMENTS = 5


def put(log: Log, first_ms: int, step_ms: int) -> None:
    """`ENTRIES` batches of one record, each with an entry in both indexes where times rise; then a roll."""
    batch = bytearray(build_batch([Record(0, first_ms, b"k", b"v")]))
    view = memoryview(batch)
    for number in range(ENTRIES):
        head = list(HEADER.unpack_from(batch))
        head[7] = head[8] = first_ms + step_ms * number
        HEADER.pack_into(batch, 0, *head)
        CRC.pack_into(batch, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))
        log.append(view, HEADER.unpack_from(batch), START_MS)
    log.roll(START_MS)


def fill(data_dir: Path) -> None:
    config = LogConfig(index_interval_bytes=0, retention_ms=-1)
    directory = LogDirectory.open(PosixDisk(), str(data_dir), clock=SystemClock(), config_of=lambda _: config)
    logs = {name: directory.logs[TopicPartition(name, 0)] for name in (FULL, UNORDERED, PACKED)}
    for number in range(FULL_SEGMENTS):
        put(logs[FULL], START_MS + number * ENTRIES, 1)
    lost = logs[FULL].segments[FULL_SEGMENTS - 1].path
    late = build_batch([Record(0, START_MS + 10**9, b"k", b"v")])
    logs[UNORDERED].append(memoryview(bytearray(late)), HEADER.unpack_from(late), START_MS)
    put(logs[UNORDERED], START_MS, 0)
    builder = BatchBuilder()
    for number in range(PACKED_RECORDS):
        builder.append(START_MS + number, b"%d" % number, b"v" * 100)
    packed = builder.build(codec=Codec.GZIP)
    logs[PACKED].append(memoryview(bytearray(packed)), HEADER.unpack_from(packed), START_MS)
    directory.close()
    for suffix in (".index", ".timeindex"):
        Path(lost + suffix).unlink()


class Timed:
    """A broker that measures the turns of its event loop."""

    def __init__(self, broker: RunningBroker, turns: TurnTimes) -> None:
        self.broker = broker
        self.turns = turns
        self.found_ms: list[float] = []

    def ask(self, api: ApiKey, version: int, request: object) -> object:
        """The response; the longest turn until then is recorded."""
        self.turns.forget()
        with RawPeer(self.broker) as peer:
            peer.ask(api, version, request)
            answer = peer.answer(api, version)[1]
            # The turn that answered counts when it is over.
            peer.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
            peer.answer(ApiKey.API_VERSIONS, 0)
        self.found_ms.append(self.turns.longest_ms)
        return answer

    def look_up(self, topic: str, timestamp: int) -> tuple[int, int]:
        """(offset, timestamp)."""
        wanted = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])]
        response = self.ask(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=wanted))
        assert isinstance(response, ListOffsetsResponse)
        (found,) = response.topics[0].partitions
        assert found.error_code == 0
        return found.offset, found.timestamp

    def assert_turns_were_short(self) -> None:
        """Garbage collection or another process may prolong a turn, so the shortest of several counts."""
        found_ms, self.found_ms = self.found_ms, []
        assert min(found_ms) < TURN_MS_MAX, found_ms


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timed]:
    turns = TurnTimes(Path(tmp_path_factory.mktemp("turns")) / "longest")
    data_dir = tmp_path_factory.mktemp("filled") / "data"
    settings = {"log.retention.ms": "-1"}
    with RunningBroker(data_dir, settings=settings) as broker, Cluster(broker.bootstrap) as cluster:
        for name in (FULL, UNORDERED, PACKED):
            Admin(cluster).create_topic(name, 1)
    fill(data_dir)
    with RunningBroker(data_dir, command=turns.command, settings=settings) as broker:
        yield Timed(broker, turns)


def test_search_that_loads_indexes_is_short(timed: Timed) -> None:
    for segment in SEARCHED:
        offset = segment * ENTRIES + 1_000
        assert timed.look_up(FULL, START_MS + offset) == (offset, START_MS + offset)
    timed.assert_turns_were_short()


def test_fetch_that_loads_indexes_is_short(timed: Timed) -> None:
    for segment in FETCHED:
        offset = segment * ENTRIES + 1_000
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1_000)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1_000, topics=[FetchTopic(FULL, partitions=[wanted])]
        )
        response = timed.ask(ApiKey.FETCH, 11, request)
        assert isinstance(response, FetchResponse)
        records = response.responses[0].partitions[0].records
        assert records is not None
        assert read_header(memoryview(records)).base_offset == offset
    timed.assert_turns_were_short()


def test_search_that_rebuilds_lost_indexes_is_short(timed: Timed) -> None:
    offset = FULL_SEGMENTS * ENTRIES - 10
    assert timed.look_up(FULL, START_MS + offset) == (offset, START_MS + offset)
    assert timed.found_ms[0] < 2 * TURN_MS_MAX, "the only one"
    timed.assert_turns_were_short()


def test_search_that_scans_a_whole_segment_is_short(timed: Timed) -> None:
    with RawPeer(timed.broker) as peer:
        topics = [DeleteRecordsTopic(UNORDERED, [DeleteRecordsPartition(0, 1)])]
        peer.ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=topics, timeout_ms=60_000))
        peer.answer(ApiKey.DELETE_RECORDS, 2)
    for _ in range(3):
        assert timed.look_up(UNORDERED, START_MS + 5) == (-1, -1)
    timed.assert_turns_were_short()
    for _ in range(3):
        assert timed.look_up(UNORDERED, MAX_TIMESTAMP) == (1, START_MS)
    timed.assert_turns_were_short()


def test_search_in_a_batch_of_many_records_is_short(timed: Timed) -> None:
    for _ in range(3):
        offset = PACKED_RECORDS - 5
        assert timed.look_up(PACKED, START_MS + offset) == (offset, START_MS + offset)
    timed.assert_turns_were_short()
