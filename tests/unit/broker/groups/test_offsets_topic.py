"""Which partition a group belongs to: Java's hash of its id, as its documentation defines it."""

from __future__ import annotations

import pytest

from ottla.broker.groups.offsets_topic import offsets_topic
from ottla.model.group_partition import partition_of
from ottla.model.settings import BrokerSettings


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("console-consumer", -648_006_740),
        ("größe", 98_762_257),
        # Beyond the 16-bit characters Java counts two.
        ("\U0001f600", 1_772_899),
        ("payments-service", 332_086_293),
        # The one int without an absolute value; Kafka takes 0.
        ("polygenelubricants", 0),
    ],
)
def test_group_belongs_where_java_puts_it(group_id: str, java_hash: int) -> None:
    assert partition_of(group_id, 50) == abs(java_hash) % 50


def test_offsets_topic_is_compacted_and_takes_its_size_from_the_settings() -> None:
    given = {"offsets.topic.num.partitions": "7", "offsets.topic.segment.bytes": "5000"}
    new = offsets_topic(BrokerSettings.of(given), is_sole=True)
    assert new.partitions_count == 7
    assert new.config["cleanup.policy"] == "compact"
    assert new.config["segment.bytes"] == "5000"


def test_topic_of_a_cluster_has_replicas_and_that_of_a_sole_broker_one() -> None:
    assert offsets_topic(BrokerSettings.of({}), is_sole=False).replication_factor == 3
    two = BrokerSettings.of({"offsets.topic.replication.factor": "2"})
    assert offsets_topic(two, is_sole=False).replication_factor == 2
    assert offsets_topic(two, is_sole=True).replication_factor == 1
