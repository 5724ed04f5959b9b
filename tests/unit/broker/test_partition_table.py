"""The partition table: found by bytes from the wire, holes where a log could not be opened."""

from __future__ import annotations

import pytest

from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from tests.unit.broker.served_log import ServedLog


def served(name: str, index: int) -> Partition:
    return Partition(ServedLog(name, index), 0)  # type: ignore[arg-type]  # what a partition uses of a log


@pytest.fixture
def table() -> PartitionTable:
    table = PartitionTable()
    for index in (0, 2):
        table.add(served("clicks", index))
    return table


def test_table_finds_a_partition_by_its_names_bytes(table: PartitionTable) -> None:
    found = table.get(b"clicks", 2)
    assert found is not None
    assert found.topic_partition == TopicPartition("clicks", 2)
    assert table.find("clicks", 2) is found


@pytest.mark.parametrize("index", [-1, -(2**31), 1, 3, 2**31 - 1])
def test_table_has_nothing_for_an_index_that_is_not_served(table: PartitionTable, index: int) -> None:
    assert table.get(b"clicks", index) is None
    assert table.absence_error(b"clicks", index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", [b"", b"click", b"clicks ", b"\xff\xfe"])
def test_table_has_nothing_for_a_name_that_is_not_served(table: PartitionTable, name: bytes) -> None:
    assert table.get(name, 0) is None


def test_table_tells_why_a_partition_could_not_be_opened_until_it_is_removed(table: PartitionTable) -> None:
    table.add_failed(TopicPartition("clicks", 1), ErrorCode.KAFKA_STORAGE_ERROR)
    assert table.get(b"clicks", 1) is None
    assert table.absence_error(b"clicks", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert table.remove(TopicPartition("clicks", 1)) is None
    assert table.absence_error(b"clicks", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_table_gives_a_removed_partition_once_and_takes_its_successor(table: PartitionTable) -> None:
    removed = table.remove(TopicPartition("clicks", 0))
    assert removed is not None
    assert table.remove(TopicPartition("clicks", 0)) is None
    successor = served("clicks", 0)
    table.add(successor)
    assert table.find("clicks", 0) is successor


def test_table_may_change_while_it_is_walked(table: PartitionTable) -> None:
    seen = []
    for partition in table:
        seen.append(partition.index)
        table.remove(partition.topic_partition)
        table.add(served(f"other-{partition.index}", 0))
    assert seen == [0, 2]
    assert len(list(table)) == 2
