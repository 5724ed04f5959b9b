"""How far a query is behind, from Spark's report of its progress."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from ottla.spark.errors import NotInThisSpark
from ottla.spark.source.stream_progress import behind
from ottla.spark.spark_features import SparkFeature, SparkFeatures

NEW = SparkFeatures("4.3.0", tuple(SparkFeature))


class Source(NamedTuple):
    endOffset: str | None
    latestOffset: str | None


def ours(done: str, ends: str) -> Source:
    return Source(json.dumps({**json.loads(done), "$ottla": {"cluster": "c"}}), ends)


def test_offsets_behind_are_those_between_the_batchs_end_and_the_logs() -> None:
    source = Source('{"a": {"0": 40, "1": 7}, "$ottla": {"cluster": "c"}}', '{"a": {"0": 70, "1": 7}}')
    assert behind([source], NEW) == {"a": {0: 30, 1: 0}}


def test_a_partition_that_no_batch_has_planned_is_left_out_as_its_first_offset_is_not_known() -> None:
    assert behind([ours('{"a": {"0": 4}}', '{"a": {"0": 4, "1": 9}, "b": {"0": 5}}')], NEW) == {"a": {0: 0}}
    assert behind([Source('{"$ottla": {"start": "unresolved"}}', '{"a": {"0": 4}}')], NEW) == {}


def test_a_log_that_ends_before_what_was_read_is_not_behind() -> None:
    assert behind([ours('{"a": {"0": 9}}', '{"a": {"0": 4}}')], NEW) == {"a": {0: 0}}


@pytest.mark.parametrize(
    ("end", "latest"),
    [
        ("5", "6"),
        ('{"logOffset": 3}', '{"logOffset": 4}'),
        (None, None),
        ("null", '{"a": {"0": 1}}'),
        # The official connector's.
        ('{"t": {"0": 5}}', '{"t": {"0": 9}}'),
    ],
)
def test_other_sources_of_the_query_are_left_out(end: str | None, latest: str | None) -> None:
    mine = ours('{"b": {"0": 1}}', '{"b": {"0": 3}}')
    assert behind([Source(end, latest), mine], NEW) == {"b": {0: 2}}


def test_two_sources_of_a_query_are_shown_together() -> None:
    sources = [ours('{"a": {"0": 1}}', '{"a": {"0": 2}}'), ours('{"b": {"0": 1}}', '{"b": {"0": 3}}')]
    assert behind(sources, NEW) == {"a": {0: 1}, "b": {0: 2}}


def test_a_spark_that_reports_no_ends_is_named() -> None:
    with pytest.raises(NotInThisSpark, match=r"needs Spark 4\.2 or newer: Spark 4\.1\.4 .*groupId"):
        behind([], SparkFeatures("4.1.4", ()))
