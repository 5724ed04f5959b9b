"""The partition table: found by bytes from the wire, holes where a log could not be opened."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionIndex, PartitionTable, Refusal
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.replica import Role
from tests.unit.broker.served_log import ServedLog

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CLICKS_ID = ServedLog("clicks").topic_id
OTHER_ID = UUID(int=7)


def served(name: str, index: int, topic_id: UUID | None = None) -> Partition:
    return ServedLog(name, index, topic_id=topic_id).partition


@pytest.fixture
def table() -> PartitionTable:
    table = PartitionTable()
    for index in (0, 2):
        table.add(served("clicks", index))
    return table


def indexes(table: PartitionTable) -> list[tuple[PartitionIndex, bytes]]:
    """Both ways to the topic of the fixture."""
    return [(table.by_name, b"clicks"), (table.by_id, CLICKS_ID.bytes)]


def test_table_finds_a_partition_by_the_bytes_of_its_name_and_of_its_id(table: PartitionTable) -> None:
    found = table.find("clicks", 2)
    assert found is not None
    assert found.topic_partition == TopicPartition("clicks", 2)
    assert [index.get(topic, 2) for index, topic in indexes(table)] == [found, found]


@pytest.mark.parametrize("index", [-1, -(2**31), 1, 3, 2**31 - 1])
def test_table_has_nothing_for_an_index_that_is_not_served(table: PartitionTable, index: int) -> None:
    for partitions, topic in indexes(table):
        assert partitions.get(topic, index) is None
        assert partitions.absence_error(topic, index) is UNKNOWN


@pytest.mark.parametrize("name", [b"", b"click", b"clicks ", b"\xff\xfe", CLICKS_ID.bytes])
def test_table_has_nothing_for_a_name_that_is_not_served(table: PartitionTable, name: bytes) -> None:
    assert table.by_name.get(name, 0) is None
    assert table.by_name.absence_error(name, 0) is UNKNOWN


@pytest.mark.parametrize("topic_id", [bytes(16), OTHER_ID.bytes, b"clicks"])
def test_table_has_nothing_for_an_id_that_is_not_served(table: PartitionTable, topic_id: bytes) -> None:
    assert table.by_id.get(topic_id, 0) is None
    assert table.by_id.absence_error(topic_id, 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_table_names_the_error_of_a_partition_that_could_not_be_opened_until_it_is_removed(
    table: PartitionTable,
) -> None:
    table.refuse(TopicPartition("clicks", 1), Refusal(CLICKS_ID, ErrorCode.KAFKA_STORAGE_ERROR))
    for partitions, topic in indexes(table):
        assert partitions.get(topic, 1) is None
        assert partitions.absence_error(topic, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert table.remove(TopicPartition("clicks", 1)) is None
    for partitions, topic in indexes(table):
        assert partitions.absence_error(topic, 1) is UNKNOWN


def test_topic_of_which_no_partition_could_be_opened_is_known_until_the_last_is_removed() -> None:
    table = PartitionTable()
    for index in (0, 1):
        table.refuse(TopicPartition("broken", index), Refusal(OTHER_ID, ErrorCode.KAFKA_STORAGE_ERROR))
    assert table.by_id.absence_error(OTHER_ID.bytes, 2) is UNKNOWN
    table.remove(TopicPartition("broken", 0))
    assert table.by_id.absence_error(OTHER_ID.bytes, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    table.remove(TopicPartition("broken", 1))
    assert table.by_id.absence_error(OTHER_ID.bytes, 1) is ErrorCode.UNKNOWN_TOPIC_ID


def test_table_returns_a_removed_partition_once_and_accepts_its_successor(table: PartitionTable) -> None:
    removed = table.remove(TopicPartition("clicks", 0))
    assert removed is not None
    assert table.remove(TopicPartition("clicks", 0)) is None
    successor = served("clicks", 0)
    table.add(successor)
    assert table.find("clicks", 0) is successor


def test_recreated_topic_is_found_by_its_own_id_only(table: PartitionTable) -> None:
    for index in (0, 2):
        table.remove(TopicPartition("clicks", index))
    successor = served("clicks", 0, OTHER_ID)
    table.add(successor)
    assert table.by_id.get(OTHER_ID.bytes, 0) is table.find("clicks", 0) is successor
    assert table.by_id.get(CLICKS_ID.bytes, 0) is None
    assert table.by_id.absence_error(CLICKS_ID.bytes, 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_table_may_change_while_it_is_iterated(table: PartitionTable) -> None:
    seen = []
    for partition in table:
        seen.append(partition.index)
        table.remove(partition.topic_partition)
        table.add(served(f"other-{partition.index}", 0))
    assert seen == [0, 2]
    assert len(list(table)) == 2


def test_removed_partition_is_retired(table: PartitionTable) -> None:
    partition = table.find("clicks", 0)
    assert partition is not None
    assert partition.is_served
    table.remove(TopicPartition("clicks", 0))
    assert not partition.is_served


def test_partitions_of_other_brokers_have_their_own_error_until_the_topic_is_forgotten(table: PartitionTable) -> None:
    elsewhere = ErrorCode.NOT_LEADER_OR_FOLLOWER
    table.set_topic("clicks", CLICKS_ID, 4)
    table.set_topic("theirs", OTHER_ID, 1)
    for partitions, topic in indexes(table):
        assert [partitions.absence_error(topic, index) for index in (1, 3, 4, -1)] == [elsewhere] * 2 + [UNKNOWN] * 2
    assert [table.by_id.absence_error(OTHER_ID.bytes, index) for index in (0, 1)] == [elsewhere, UNKNOWN]
    table.refuse(TopicPartition("clicks", 1), Refusal(CLICKS_ID, ErrorCode.KAFKA_STORAGE_ERROR))
    assert table.absence_error("clicks", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    table.forget_topic("theirs", OTHER_ID)
    assert table.absence_error("theirs", 0) is UNKNOWN
    assert table.by_id.absence_error(OTHER_ID.bytes, 0) is ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_that_is_removed_counts_as_resigned(table: PartitionTable) -> None:
    """Its log failed, for example, while the tree says that it leads."""
    removed = table.remove(TopicPartition("clicks", 0))
    assert removed is not None
    assert (removed.role, table.resignations_count) == (Role.LEADER, 1)
    table.remove(TopicPartition("clicks", 0))
    assert table.resignations_count == 1
