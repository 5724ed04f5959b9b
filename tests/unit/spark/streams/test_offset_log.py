"""Entries of a query's log of offsets."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import BadCheckpoint
from ottla.spark.source.stream_plan import StreamOffsets, to_checkpoint
from ottla.spark.streams.late_rows import LoggedBatch, parse_entry

OFFSETS = StreamOffsets(
    {TopicPartition("clicks", 0): 70, TopicPartition("clicks", 1): 30},
    "cluster",
    {"clicks": UUID(int=700)},
    {TopicPartition("clicks", 1): 12},
)
METADATA = '{"batchWatermarkMs":1307869200000,"batchTimestampMs":1700000000000,"conf":{"a":"b"}}'


def test_entry_has_the_watermark_and_the_end_of_each_source() -> None:
    line = json.dumps(to_checkpoint(OFFSETS))
    assert parse_entry(f"v1\n{METADATA}\n{line}\n-", "offsets/3") == LoggedBatch(1_307_869_200_000, (OFFSETS, None))
    assert parse_entry(f"v1\n{METADATA}\n{line}\n", "offsets/3").ends == (OFFSETS,)


def test_source_that_is_not_resolved_yet_has_no_end() -> None:
    entry = parse_entry('v1\n{"batchWatermarkMs":0}\n{"$ottla": {"start": "unresolved"}}', "offsets/0")
    assert entry == LoggedBatch(0, (None,))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has the form '', and not v1"),
        ("v2\n{}", "has the form 'v2', and not v1"),
        ("v1", "offsets/3 cannot be read"),
        ("v1\n{}\n{}", "batchWatermarkMs"),
        (f"v1\n{METADATA}\n17", "17 are no offsets of a topic"),
        (f'v1\n{METADATA}\n{{"clicks": 4}}', "which are no offsets"),
    ],
)
def test_entry_of_another_form_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadCheckpoint, match=problem):
        parse_entry(text, "offsets/3")
