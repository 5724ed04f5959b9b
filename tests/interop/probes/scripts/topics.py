"""Metadata, and a topic from creation to deletion."""

from __future__ import annotations

from ottla.protocol.schemas.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from tests.interop.probes.talk import Talk


def _metadata(*names: str, auto_create: bool = False) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], auto_create)


def probe_metadata(talk: Talk) -> None:
    talk.create_topic("probe-metadata", 3)
    for version in range(13):
        talk.ask(f"Metadata v{version}", version, _metadata("probe-metadata", auto_create=True))
    talk.ask("Metadata of no topic", 12, _metadata())
    talk.ask("Metadata of an unknown topic, not to be made", 12, _metadata("probe-unknown"))
    for number, name in enumerate(["bad name", ".", "..", "x" * 250, ""]):
        talk.ask(f"Metadata of the bad name {number}", 9, _metadata(name, auto_create=True))
    talk.ask("Metadata of the same topic twice", 9, _metadata("probe-metadata", "probe-metadata"))
    operations = MetadataRequest(
        [MetadataRequestTopic(name="probe-metadata")], False, include_topic_authorized_operations=True
    )
    talk.ask("Metadata with authorized operations", 9, operations)


def _create(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    entries = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, replicas, [], entries)


def probe_create_topics(talk: Talk) -> None:
    talk.ask("Metadata before", 9, _metadata())
    cases = {
        "by defaults": _create("probe-create-defaults", -1, -1),
        "with configs": _create("probe-create-configs", 2, 1, retention_ms="1000", cleanup_policy="compact"),
        "no partitions": _create("probe-create-a", 0),
        "too many replicas": _create("probe-create-b", 1, 3),
        "no replicas": _create("probe-create-c", 1, 0),
        "an unknown config": _create("probe-create-d", bogus="1"),
        "a bad value": _create("probe-create-e", retention_ms="soon"),
        "a value below its least": _create("probe-create-f", max_message_bytes="-1"),
        "a bad name": _create("probe create"),
        "one dot": _create("."),
        "an empty name": _create(""),
        "dots inside": _create("probe..create"),
        "a name of 249": _create("x" * 249),
        "a name of 250": _create("x" * 250),
        "an assignment": CreatableTopic("probe-create-g", -1, -1, [CreatableReplicaAssignment(0, [1])], []),
        "an assignment and a count": CreatableTopic("probe-create-h", 1, 1, [CreatableReplicaAssignment(0, [1])], []),
        "an unknown broker": CreatableTopic("probe-create-i", -1, -1, [CreatableReplicaAssignment(0, [99])], []),
    }
    for label, topic in cases.items():
        talk.ask(f"CreateTopics v7 {label}", 7, CreateTopicsRequest([topic], 10_000))
    for version in (2, 4, 5):
        topic = _create(f"probe-create-v{version}")
        talk.ask(f"CreateTopics v{version}", version, CreateTopicsRequest([topic], 10_000))
    talk.ask("CreateTopics v7 again", 7, CreateTopicsRequest([_create("probe-create-v5")], 10_000))
    # Names of metrics hold "_" for ".", so two such names may not coexist.
    talk.ask("CreateTopics v7 collides", 7, CreateTopicsRequest([_create("probe..crea_e")], 10_000))
    both = [_create("probe-create-x"), _create("probe-create-x")]
    talk.ask("CreateTopics v7 twice in one request", 7, CreateTopicsRequest(both, 10_000))
    talk.ask("CreateTopics v7 validated only", 7, CreateTopicsRequest([_create("probe-create-y")], 10_000, True))
    talk.ask("Metadata of what was validated only", 9, _metadata("probe-create-y"))


def probe_create_partitions(talk: Talk) -> None:
    talk.create_topic("probe-grow", 2)
    cases = {
        "to fewer": CreatePartitionsTopic("probe-grow", 1, None),
        "to as many": CreatePartitionsTopic("probe-grow", 2, None),
        "to none": CreatePartitionsTopic("probe-grow", 0, None),
        "of nothing": CreatePartitionsTopic("probe-nowhere", 4, None),
        "with an assignment": CreatePartitionsTopic("probe-grow", 3, [CreatePartitionsAssignment([1])]),
        "with too short an assignment": CreatePartitionsTopic("probe-grow", 6, [CreatePartitionsAssignment([1])]),
        "to more": CreatePartitionsTopic("probe-grow", 4, None),
    }
    for label, topic in cases.items():
        talk.ask(f"CreatePartitions {label}", 3, CreatePartitionsRequest([topic], 10_000))
    check = CreatePartitionsRequest([CreatePartitionsTopic("probe-grow", 9, None)], 10_000, True)
    talk.ask("CreatePartitions validated only", 3, check)
    talk.ask("CreatePartitions v0", 0, CreatePartitionsRequest([CreatePartitionsTopic("probe-grow", 5, None)], 10_000))
    twice = [CreatePartitionsTopic("probe-grow", 7, None), CreatePartitionsTopic("probe-grow", 8, None)]
    talk.ask("CreatePartitions twice in one request", 3, CreatePartitionsRequest(twice, 10_000))
    talk.settle_topic("probe-grow")
    talk.ask("Metadata of what has grown", 9, _metadata("probe-grow"))


def probe_delete_topics(talk: Talk) -> None:
    for name in ("probe-delete-a", "probe-delete-b", "probe-delete-c"):
        talk.create_topic(name)
    topic_id = talk.settle_topic("probe-delete-c").topics[0].topic_id
    request = DeleteTopicsRequest(topic_names=["probe-delete-a", "probe-nowhere"], timeout_ms=10_000)
    talk.ask("DeleteTopics v5", 5, request)
    by_name = [DeleteTopicState(name="probe-delete-b"), DeleteTopicState(name="probe-nowhere")]
    talk.ask("DeleteTopics v6 by name", 6, DeleteTopicsRequest(by_name, timeout_ms=10_000))
    talk.ask("DeleteTopics v6 by id", 6, DeleteTopicsRequest([DeleteTopicState(None, topic_id)], timeout_ms=10_000))
    talk.ask("DeleteTopics v6 by id again", 6, DeleteTopicsRequest([DeleteTopicState(None, topic_id)], [], 10_000))
    nameless = DeleteTopicsRequest([DeleteTopicState(None)], timeout_ms=10_000)
    talk.ask("DeleteTopics v6 of neither name nor id", 6, nameless)
    talk.ask("DeleteTopics v1", 1, DeleteTopicsRequest(topic_names=["probe-delete-a"], timeout_ms=10_000))
