"""Which partition a group or a transactional id belongs to, by Java's hash; what its topic is created with."""

from __future__ import annotations

import pytest

from ottla.broker.shards.internal_topics import internal_topic
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
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
    new = internal_topic(OFFSETS_TOPIC, BrokerSettings.of(given), is_sole=True)
    assert new.partitions_count == 7
    assert new.config["cleanup.policy"] == "compact"
    assert new.config["segment.bytes"] == "5000"


def test_topic_of_a_cluster_has_replicas_and_that_of_a_sole_broker_one() -> None:
    assert internal_topic(OFFSETS_TOPIC, BrokerSettings.of({}), is_sole=False).replication_factor == 3
    two = BrokerSettings.of({"offsets.topic.replication.factor": "2"})
    assert internal_topic(OFFSETS_TOPIC, two, is_sole=False).replication_factor == 2
    assert internal_topic(OFFSETS_TOPIC, two, is_sole=True).replication_factor == 1


def test_topic_of_transactions_is_never_led_by_a_replica_that_lacks_decisions() -> None:
    new = internal_topic(TRANSACTIONS_TOPIC, BrokerSettings.of({"transaction.state.log.min.isr": "3"}), is_sole=False)
    assert new.config["unclean.leader.election.enable"] == "false"
    assert new.config["min.insync.replicas"] == "3"
    assert new.config["cleanup.policy"] == "compact"
    assert (new.partitions_count, new.replication_factor) == (50, 3)
