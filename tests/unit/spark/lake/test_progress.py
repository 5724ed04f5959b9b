from __future__ import annotations

from uuid import UUID

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.errors import LakeError
from ottla.spark.lake.plans import KEPT_BY_TOPIC_ID, TopicKeys, progress_of, versions_to_commit

FIRST = TopicPartition("clicks", 0)
SECOND = TopicPartition("clicks", 1)
OLD = TopicKeys("cluster", {"clicks": UUID(int=1000)})
NEW = TopicKeys("cluster", {"clicks": UUID(int=2000)})
WITHOUT_IDS = TopicKeys("cluster", {"clicks": ZERO_UUID})


def load(table: dict[str, int], keys: TopicKeys, end: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """One load of everything up to `end` from logs that begin at 0; returns where it began."""
    progress = progress_of(end, keys, table.get)
    first = dict.fromkeys(end, 0) | progress.next_offsets
    table |= versions_to_commit(progress, end, keys)
    return first


def test_progress_continues_where_the_last_load_of_the_topic_ended() -> None:
    table: dict[str, int] = {}
    assert load(table, OLD, {FIRST: 5, SECOND: 7}) == {FIRST: 0, SECOND: 0}
    assert load(table, OLD, {FIRST: 6, SECOND: 7}) == {FIRST: 5, SECOND: 7}
    assert load(table, OLD, {FIRST: 6, SECOND: 8}) == {FIRST: 6, SECOND: 7}


def test_progress_starts_again_when_the_topic_is_another_one() -> None:
    table: dict[str, int] = {}
    load(table, OLD, {FIRST: 5})
    assert progress_of([FIRST], OLD, table.get).recreated_topics == set()
    assert progress_of([FIRST], NEW, table.get).recreated_topics == {"clicks"}
    assert load(table, NEW, {FIRST: 9, SECOND: 1}) == {FIRST: 0, SECOND: 0}
    assert progress_of([FIRST, SECOND], NEW, table.get).recreated_topics == set()


def test_progress_under_the_name_is_continued_once() -> None:
    table: dict[str, int] = {}
    load(table, WITHOUT_IDS, {FIRST: 5})
    assert load(table, OLD, {FIRST: 5}) == {FIRST: 5}
    assert load(table, NEW, {FIRST: 9}) == {FIRST: 0}
    assert load(table, OLD, {FIRST: 9}) == {FIRST: 5}


def test_progress_under_the_name_serves_while_the_cluster_has_no_ids() -> None:
    table: dict[str, int] = {}
    load(table, WITHOUT_IDS, {FIRST: 5})
    assert load(table, WITHOUT_IDS, {FIRST: 8}) == {FIRST: 5}


def test_progress_is_refused_when_the_cluster_gives_no_ids_any_more() -> None:
    table: dict[str, int] = {}
    load(table, OLD, {FIRST: 5})
    with pytest.raises(LakeError, match="gives no topic ids"):
        progress_of([FIRST], WITHOUT_IDS, table.get)


def test_progress_is_not_written_when_nothing_moved() -> None:
    table: dict[str, int] = {}
    load(table, OLD, {FIRST: 5})
    progress = progress_of([FIRST], OLD, table.get)
    assert versions_to_commit(progress, {FIRST: 5}, OLD) == {}


def test_a_partition_has_a_number_from_the_first_load_that_saw_it() -> None:
    table: dict[str, int] = {}
    load(table, OLD, {FIRST: 0})
    assert progress_of([FIRST], OLD, table.get).next_offsets == {FIRST: 0}


def test_a_topic_is_known_by_any_of_its_partitions_and_by_its_name() -> None:
    table: dict[str, int] = {}
    assert progress_of([FIRST, SECOND], OLD, table.get).known_topics == set()
    load(table, OLD, {FIRST: 5})
    assert progress_of([FIRST, SECOND], OLD, table.get).known_topics == {"clicks"}
    assert progress_of([FIRST, SECOND], NEW, table.get).known_topics == {"clicks"}


def test_progress_moves_back_when_the_log_lost_records() -> None:
    table: dict[str, int] = {}
    load(table, OLD, {FIRST: 5})
    progress = progress_of([FIRST], OLD, table.get)
    table |= versions_to_commit(progress, {FIRST: 3}, OLD)
    assert load(table, OLD, {FIRST: 9}) == {FIRST: 3}


def test_keys_of_a_topic_id_and_of_any_topic_name_differ() -> None:
    table: dict[str, int] = {}
    load(table, OLD, {FIRST: 5})
    assert table == {"ottla/cluster/clicks:AAAAAAAAAAAAAAAAAAAD6A/0": 5, "ottla/cluster/clicks/0": KEPT_BY_TOPIC_ID}
