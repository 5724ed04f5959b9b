"""What `ottla topic describe` and `list` show of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.cli.output import WIDTH, table
from ottla.model.counted import counted
from ottla.observe.text import safe_text

if TYPE_CHECKING:
    from ottla.client.wire.metadata import TopicInfo


def topic_object(topic: TopicInfo, settings: dict[str, str]) -> dict[str, object]:
    from ottla.model.identifiers import uuid_to_text

    return {
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "configs": settings,
        "partitions": [
            {
                "partition": info.partition,
                "leader": info.leader_id,
                "leader_epoch": info.leader_epoch,
                "replicas": list(info.replicas),
                "in_sync_replicas": list(info.in_sync_replicas),
            }
            for info in topic.partitions.values()
        ],
    }


def description(topic: TopicInfo, settings: Mapping[str, str]) -> list[str]:
    """For people, at most 80 columns wide: a setting is a line, and long lists of replicas are several."""
    from ottla.model.identifiers import uuid_to_text

    partitions = list(topic.partitions.values())
    factor = len(partitions[0].replicas) if partitions else 0
    internal = ", internal" if topic.is_internal else ""
    lines = [
        f"topic {topic.name}{internal}",
        f"  id {uuid_to_text(topic.topic_id)}",
        f"  {counted(len(partitions), 'partition')} with {counted(factor, 'replica')} each",
        *(f"  {name}={safe_text(value)}" for name, value in settings.items()),
    ]
    rows = [
        (
            info.partition,
            "none" if info.leader_id < 0 else info.leader_id,
            ",".join(map(str, info.replicas)),
            ",".join(map(str, info.in_sync_replicas)),
        )
        for info in partitions
    ]
    return lines + table(("PARTITION", "LEADER", "REPLICAS", "IN-SYNC"), rows, width=WIDTH)


def lines_of_kafka(topic: TopicInfo, settings: Mapping[str, str]) -> list[str]:
    from ottla.model.identifiers import uuid_to_text

    partitions = list(topic.partitions.values())
    factor = len(partitions[0].replicas) if partitions else 0
    configs = ",".join(f"{name}={safe_text(value)}" for name, value in settings.items())
    lines = [
        f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: {len(partitions)}"
        f"\tReplicationFactor: {factor}\tConfigs: {configs}"
    ]
    for info in partitions:
        leader = "none" if info.leader_id < 0 else str(info.leader_id)
        replicas = ",".join(map(str, info.replicas))
        in_sync = ",".join(map(str, info.in_sync_replicas))
        lines.append(
            f"\tTopic: {topic.name}\tPartition: {info.partition}\tLeader: {leader}"
            f"\tReplicas: {replicas}\tIsr: {in_sync}"
        )
    return lines
