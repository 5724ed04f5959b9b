from __future__ import annotations

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.storage.log_files import base_offsets_in, leftovers_in, topic_partition_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("clicks-0", TopicPartition("clicks", 0)),
        ("page-views-12", TopicPartition("page-views", 12)),
        ("clicks", None),
        ("clicks-", None),
        ("clicks-01", None),
        ("clicks--1", TopicPartition("clicks-", 1)),
        ("click s-1", None),
        ("clicks-99999999999", None),
        ("clicks-4294967296", None),
        ("clicks-0.0a0b-delete", None),
    ],
)
def test_directory_name_gives_its_partition_only_when_it_is_one(name: str, expected: TopicPartition | None) -> None:
    assert topic_partition_of(name) == expected


def test_base_offsets_come_from_log_files_in_order() -> None:
    names = ["00000000000000000100.log", "00000000000000000000.log", "00000000000000000000.index", "100.log", "x.log"]
    assert base_offsets_in(names) == [0, 100]


def test_leftovers_are_half_written_files_and_indexes_without_a_log() -> None:
    names = [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.log.deleted",
        "00000000000000000100.index",
        "00000000000000000100.timeindex",
        "00000000000000000100.snapshot",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata",
    ]
    assert leftovers_in(names) == [
        "00000000000000000000.log.deleted",
        "00000000000000000100.index",
        "00000000000000000100.timeindex",
        "leader-epoch-checkpoint.tmp",
    ]
