"""What `ottla topic describe` shows of a topic."""

from __future__ import annotations

from uuid import UUID

from ottla.cli.topic.description import description
from ottla.client.wire.metadata import PartitionInfo, TopicInfo
from ottla.model.error_code import ErrorCode

NODES = tuple(range(1001, 1016))


def topic_of(replicas: tuple[int, ...], leader_id: int = 1001) -> TopicInfo:
    partition = PartitionInfo(0, leader_id, 5, replicas, replicas[:1], (), ErrorCode.NONE)
    return TopicInfo("clicks", UUID(int=1), False, {0: partition})


def test_topic_is_a_table_with_a_line_for_each_setting() -> None:
    assert description(topic_of((1001, 1002)), {"retention.ms": "1", "cleanup.policy": "a\nb"}) == [
        "topic clicks",
        "  id AAAAAAAAAAAAAAAAAAAAAQ",
        "  1 partition with 2 replicas each",
        "  retention.ms=1",
        "  cleanup.policy=a\\nb",
        "PARTITION LEADER REPLICAS  IN-SYNC",
        "0         1001   1001,1002 1001",
    ]


def test_topic_with_many_replicas_is_not_wider_than_a_terminal() -> None:
    lines = description(topic_of(NODES, leader_id=-1), {})
    assert all(len(line) <= 80 for line in lines)
    shown = "".join(line[17:].partition(" ")[0] for line in lines[4:])
    assert shown == ",".join(map(str, NODES))
    assert lines[4].split()[:2] == ["0", "none"]
