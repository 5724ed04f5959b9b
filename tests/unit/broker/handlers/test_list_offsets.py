from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ottla.broker.handlers.list_offsets import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import Refusal
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import HEADER
from ottla.records.record import Record
from ottla.runtime.offload import Offload
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.disk_faults import OperationKind
from tests.property.wire_samples import SAMPLE_UUID
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.live_brokers import live
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated, resign
from tests.unit.broker.served_log import ServedLog

VERSIONS = range(1, 10)


async def ask(
    broker: SmallBroker,
    version: int,
    timestamp: int,
    *,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    isolation_level: int = 0,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(index, epoch, timestamp)])
    request = ListOffsetsRequest(replica_id, isolation_level, [wanted])
    response = await broker.ask(ApiKey.LIST_OFFSETS, version, request, ListOffsetsResponse)
    return response.topics[0].partitions[0]


def with_records() -> SmallBroker:
    """Offsets 0-2 at 100, 300, 200 ms in one batch, 3 and 4 at 250 and 400 in the next, both in leader epoch 2."""
    broker = SmallBroker()
    broker.add_topic("t", leader_epoch=2)
    broker.append("t", 100, 300, 200, codec=Codec.ZSTD)
    broker.append("t", 250, 400)
    return broker


def answer(version: int, offset: int, timestamp: int, epoch: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(0, 0, timestamp, offset, epoch if version >= 4 else -1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_latest_is_the_high_watermark(version: int) -> None:
    assert await ask(with_records(), version, LATEST) == answer(version, 5, -1, 2)


def with_open_transaction() -> SmallBroker:
    """The same records, and offset 5 at 500 ms in a transaction that is open."""
    broker = with_records()
    partition = broker.partition("t")
    batch = build_batch(
        [Record(0, 500, b"key", b"value")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    guard = partition.guard(7, 0, 0)
    partition.append(memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, broker.clock.now_ms(), guard)
    return broker


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_log_ends_at_the_open_transaction_for_readers_of_committed_records(version: int) -> None:
    broker = with_open_transaction()
    assert await ask(broker, version, LATEST, isolation_level=1) == answer(version, 5, -1, 2)
    assert await ask(broker, version, LATEST) == answer(version, 6, -1, 2)
    assert await ask(broker, version, 450, isolation_level=1) == answer(version, -1, -1, -1)
    assert await ask(broker, version, 450) == answer(version, 5, 500, 2)


async def test_greatest_time_is_that_of_a_committed_record_for_readers_of_these() -> None:
    broker = with_open_transaction()
    assert await ask(broker, 9, MAX_TIMESTAMP, isolation_level=1) == answer(9, 4, 400, 2)
    assert await ask(broker, 9, MAX_TIMESTAMP) == answer(9, 5, 500, 2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_earliest_is_the_log_start(version: int) -> None:
    broker = with_records()
    broker.partition("t").delete_records_before(2)
    assert await ask(broker, version, EARLIEST) == answer(version, 2, -1, 2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"), [(0, 0, 100), (100, 0, 100), (101, 1, 300), (250, 1, 300), (301, 4, 400)]
)
async def test_time_finds_the_first_record_at_or_after_it(
    version: int, timestamp: int, offset: int, found_ms: int
) -> None:
    assert await ask(with_records(), version, timestamp) == answer(version, offset, found_ms, 2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_time_after_the_last_record_finds_nothing(version: int) -> None:
    assert await ask(with_records(), version, 401) == answer(version, -1, -1, -1)


@pytest.mark.parametrize("timestamp", [250, MAX_TIMESTAMP])
async def test_time_in_a_log_that_cannot_be_read_is_a_storage_error(timestamp: int) -> None:
    broker = with_records()
    broker.disk.faults.fail("read", error=errno.EIO, times=None)
    assert (await ask(broker, 9, timestamp)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def of_segments(broker: SmallBroker, topic: str) -> Log:
    """Two closed ones with a record each, at 100 and 200, of which no index is in memory; the third one is empty."""
    broker.add_topic(topic)
    log = broker.partition(topic)._log
    for timestamp_ms in (100, 200):
        broker.append(topic, timestamp_ms)
        log.roll(0)
    for segment in log.segments[:-1]:
        segment.drop_indexes()
    return log


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("kind", ["open", "read"])
async def test_index_that_cannot_be_loaded_is_an_error_of_its_partition_alone(kind: OperationKind, suffix: str) -> None:
    broker = SmallBroker()
    of_segments(broker, "failing")
    of_segments(broker, "whole")
    broker.disk.faults.fail(kind, path_contains=f"failing-0/{0:020d}{suffix}")
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, 100)]) for name in ("failing", "whole")]
    for codes in ([ErrorCode.KAFKA_STORAGE_ERROR, 0], [0, 0]):
        response = await broker.ask(ApiKey.LIST_OFFSETS, 9, ListOffsetsRequest(topics=topics), ListOffsetsResponse)
        assert [topic.partitions[0].error_code for topic in response.topics] == codes
    broker.partition("failing")._log.check_invariants()


async def during_a_search(
    broker: SmallBroker, monkeypatch: pytest.MonkeyPatch, change: Callable[[Partition], None]
) -> ListOffsetsPartitionResponse:
    """Ask for a time; `change` is called once while it is searched."""
    changes = [change]

    async def search(partition: Partition, timestamp_ms: int, end_offset: int, offload: Offload) -> object:
        found = await partition._log.offset_for_timestamp(timestamp_ms, end_offset, offload)
        if changes:
            changes.pop()(partition)
        return found

    monkeypatch.setattr(Partition, "offset_for_timestamp", search)
    return await ask(broker, 9, 150, topic="t")


def remove(broker: SmallBroker, partition: Partition) -> None:
    broker.partitions.remove(partition.topic_partition)


async def test_leader_that_resigns_while_it_searches_does_not_answer_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SmallBroker()
    of_segments(broker, "t")
    found = await during_a_search(broker, monkeypatch, resign)
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_topic_that_is_made_anew_during_a_search_answers_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SmallBroker()
    of_segments(broker, "t")
    anew = ServedLog("t", config=LogConfig(flush_policy="os"))
    for timestamp_ms in (50, 160):
        anew.append(build_batch([Record(0, timestamp_ms, None, b"value")]))

    def replace(partition: Partition) -> None:
        remove(broker, partition)
        broker.partitions.add(anew.partition)

    assert await during_a_search(broker, monkeypatch, replace) == answer(9, 1, 160, 0)


async def test_partition_that_is_deleted_during_a_search_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SmallBroker()
    of_segments(broker, "t")
    found = await during_a_search(broker, monkeypatch, lambda each: remove(broker, each))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_time_finds_nothing_above_the_high_watermark() -> None:
    broker = with_records()
    broker.partition("t").high_watermark = 3
    assert await ask(broker, 9, 301) == answer(9, -1, -1, -1)
    assert await ask(broker, 9, MAX_TIMESTAMP) == answer(9, 1, 300, 2)


@pytest.mark.parametrize(
    ("special", "first_version", "found"),
    [(MAX_TIMESTAMP, 7, (4, 400, 2)), (EARLIEST_LOCAL, 8, (0, -1, 2)), (LATEST_TIERED, 9, (-1, -1, -1))],
)
@pytest.mark.parametrize("version", VERSIONS)
async def test_special_time_is_known_from_its_version_on(
    special: int, first_version: int, found: tuple[int, int, int], version: int
) -> None:
    result = await ask(with_records(), version, special)
    if version >= first_version:
        assert result == answer(version, *found)
    else:
        assert result == ListOffsetsPartitionResponse(0, ErrorCode.UNSUPPORTED_VERSION)


async def test_unknown_special_time_is_unsupported() -> None:
    assert await ask(with_records(), 9, -6) == ListOffsetsPartitionResponse(0, ErrorCode.UNSUPPORTED_VERSION)


async def test_empty_log_has_no_greatest_timestamp_and_the_current_epoch() -> None:
    broker = SmallBroker()
    broker.add_topic("t", leader_epoch=4)
    assert await ask(broker, 9, MAX_TIMESTAMP) == answer(9, -1, -1, -1)
    assert await ask(broker, 9, LATEST) == answer(9, 0, -1, 4)
    assert await ask(broker, 9, EARLIEST) == answer(9, 0, -1, 4)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (2, 0), (1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_other_leader_epoch_than_the_current_one_is_refused(epoch: int, code: int) -> None:
    assert (await ask(with_records(), 9, LATEST, epoch=epoch)).error_code == code


@pytest.mark.parametrize(("topic", "index"), [("t", 1), ("t", -1), ("unknown", 0), ("", 0)])
async def test_unknown_partition_is_told(topic: str, index: int) -> None:
    result = await ask(with_records(), 9, LATEST, topic=topic, index=index)
    assert result == ListOffsetsPartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_partition_that_could_not_be_opened_tells_its_error() -> None:
    broker = with_records()
    broker.partitions.remove(TopicPartition("t", 0))
    broker.partitions.refuse(TopicPartition("t", 0), Refusal(SAMPLE_UUID, ErrorCode.KAFKA_STORAGE_ERROR))
    assert (await ask(broker, 9, LATEST)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_partition_that_is_led_elsewhere_is_refused() -> None:
    broker = with_records()
    resign(broker.partition("t"))
    assert (await ask(broker, 9, EARLIEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, 0])
async def test_broker_that_was_paused_until_its_lease_was_over_answers_for_no_partition(timestamp: int) -> None:
    broker = with_records()
    broker.brokers.may_lead = False
    assert (await ask(broker, 9, timestamp)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_partition_that_is_named_twice_is_refused() -> None:
    twice = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, LATEST), ListOffsetsPartition(0, -1, EARLIEST)])
    response = await with_records().ask(ApiKey.LIST_OFFSETS, 9, ListOffsetsRequest(topics=[twice]), ListOffsetsResponse)
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]


def of_a_new_leader(high_watermark: int) -> SmallBroker:
    """The same records, led since epoch 3 with a follower, `ELSEWHERE`, that has not fetched yet."""
    broker = with_records()
    former = broker.partitions.remove(TopicPartition("t", 0))
    assert former is not None
    partition = Partition(former._log, HERE, high_watermark=high_watermark)
    partition.on_state(replicated(HERE, 3, 1), one_of(HERE, ELSEWHERE), 0)
    broker.partitions.add(partition)
    broker.brokers.live = live(HERE, ELSEWHERE)
    return broker


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("timestamp", [LATEST, 301, 401])
async def test_new_leader_does_not_know_the_end_before_its_high_watermark_reaches_its_epoch(
    version: int, timestamp: int
) -> None:
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    assert await ask(of_a_new_leader(3), version, timestamp) == ListOffsetsPartitionResponse(0, code)


async def test_new_leader_knows_what_lies_below_its_high_watermark() -> None:
    broker = of_a_new_leader(3)
    assert await ask(broker, 9, EARLIEST) == answer(9, 0, -1, 2)
    assert await ask(broker, 9, 150) == answer(9, 1, 300, 2)
    assert await ask(broker, 9, MAX_TIMESTAMP) == answer(9, 1, 300, 2)
    assert await ask(of_a_new_leader(5), 9, LATEST) == answer(9, 5, -1, 3)


async def test_replica_is_told_the_log_end() -> None:
    broker = of_a_new_leader(3)
    assert await ask(broker, 9, LATEST, replica_id=ELSEWHERE) == answer(9, 5, -1, 3)
    assert await ask(broker, 9, 301, replica_id=ELSEWHERE) == answer(9, 4, 400, 2)
    assert await ask(broker, 9, 401, replica_id=ELSEWHERE) == answer(9, -1, -1, -1)


@pytest.mark.parametrize("replica_id", [-2, 0, 3, 2**31 - 1])
async def test_other_ids_than_those_of_live_replicas_count_for_nothing(replica_id: int) -> None:
    broker = of_a_new_leader(3)
    # Broker 3 is live, and the partition is not assigned to it.
    broker.brokers.live = live(HERE, ELSEWHERE, 3)
    assert (await ask(broker, 9, LATEST, replica_id=replica_id)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    broker.brokers.live = live(HERE)
    assert (await ask(broker, 9, LATEST, replica_id=ELSEWHERE)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
