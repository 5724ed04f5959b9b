"""Administrative changes to topics under load, with kills in between: moves, new leaders, partitions, settings.

The topic is the one that the clients write and read, so the history judges it all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.metadata import PartitionInfo
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.testing.broker import RunningBroker
from tests.cluster.recreated_topic import recreate_topic, recreate_topic_while_one_is_away
from tests.cluster.servability import ALL
from tests.cluster.target import Fault, Target
from tests.eventually import eventually
from tests.history.clients import PARTITIONS_COUNT, TOPIC

_ELECTED_WITHIN_S: Final = 30
_ASK_AGAIN_S: Final = 0.2
_OPTIONS: Final = ClientOptions(
    client_id="administrator", call_timeout_ms=10_000, connect_timeout_ms=1_000, request_timeout_ms=5_000
)
_ALL_IN_SYNC: Final = "3"
# Values with guarantees as strong as the topic's initial ones.
_CHANGES: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("segment.bytes", ("65536", "131072", "1048576")),
    ("index.interval.bytes", ("512", "4096")),
    ("max.message.bytes", ("1048588", "4194304")),
    ("compression.type", ("producer", "gzip", "lz4")),
    ("retention.ms", ("-1", "7200000")),
    ("flush.messages", ("1", "9223372036854775807")),
    ("min.insync.replicas", ("2", _ALL_IN_SYNC)),
)
_MIN_IN_SYNC: Final = ("min.insync.replicas", "2")


def move_replica(target: Target) -> str:
    """One broker drops its replica of a partition, perhaps the leader's, and gets a fresh copy."""
    return _move(target, killed=None)


def move_replica_and_kill(target: Target) -> str:
    """Meanwhile the copying broker is killed, or one that it copies from."""
    return _move(target, killed=target.any_broker())


def _move(target: Target, killed: RunningBroker | None) -> str:
    cluster = target.cluster
    cluster.wait_until_replicated()
    index = target.random.randrange(PARTITIONS_COUNT)
    former = _partition(target, index)
    leaving = target.random.choice(former.replicas)
    staying = [node_id for node_id in former.replicas if node_id != leaving]
    target.random.shuffle(staying)
    _assign(target, index, staying)
    _wait_until_at(target, index, staying)
    directory = cluster.broker(leaving).data_dir / f"{TOPIC}-{index}"
    eventually(lambda: not directory.exists())
    everywhere = [*staying, leaving]
    target.random.shuffle(everywhere)
    _assign(target, index, everywhere)
    moved = f"{TOPIC}-{index} moved from {list(former.replicas)} to {staying} and to {everywhere}"
    if killed is not None:
        killed.kill()
        target.wait_a_while()
        killed.start()
        moved += f", broker {killed.node_id} killed meanwhile"
    _wait_until_at(target, index, everywhere)
    return moved


def move_leaders(target: Target) -> str:
    """Every partition gets another preferred leader, and then that one leads."""
    cluster = target.cluster
    cluster.wait_until_replicated()
    preferred = {}
    for index in range(PARTITIONS_COUNT):
        seen = _partition(target, index)
        followers = [node_id for node_id in seen.replicas if node_id != seen.leader_id]
        target.random.shuffle(followers)
        _assign(target, index, [*followers, seen.leader_id])
        preferred[index] = followers[0]
    for index, node_id in preferred.items():
        cluster.wait_for(
            f"{TOPIC}-{index} with {node_id} first",
            lambda index=index: _partition(target, index),  # type: ignore[misc]
            lambda seen, node_id=node_id: seen.replicas[0] == node_id,  # type: ignore[misc]
        )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = [LibrdkafkaPartition(TOPIC, index) for index in preferred]
    admin.elect_leaders(ElectionType.PREFERRED, wanted).result(_ELECTED_WITHIN_S)
    for index, node_id in preferred.items():
        cluster.wait_for(
            f"{TOPIC}-{index} led by {node_id}",
            lambda index=index: _partition(target, index),  # type: ignore[misc]
            lambda seen, node_id=node_id: seen.leader_id == node_id,  # type: ignore[misc]
        )
    return f"{TOPIC} got the leaders {list(preferred.values())}"


def _assign(target: Target, index: int, replicas: Sequence[int]) -> None:
    """Retry until it succeeds: the queried broker may be busy with an election."""
    partition = TopicPartition(TOPIC, index)

    def is_granted() -> bool:
        try:
            with Cluster(target.cluster.bootstrap, _OPTIONS) as client:
                return Admin(client).alter_reassignments({partition: replicas})[partition] is None
        except ClientError:
            return False

    eventually(is_granted, every_s=_ASK_AGAIN_S)


def _wait_until_at(target: Target, index: int, node_ids: Sequence[int]) -> None:
    target.cluster.wait_for(
        f"{TOPIC}-{index} at {node_ids}",
        lambda: _partition(target, index),
        lambda seen: (
            list(seen.replicas) == list(node_ids)
            and set(seen.in_sync_replicas) == set(node_ids)
            and seen.leader_id in node_ids
        ),
    )


def _partition(target: Target, index: int) -> PartitionInfo:
    seen = target.cluster.partition(TOPIC, index)
    assert seen is not None, f"{TOPIC}-{index} is gone"
    return seen


def grow_topic(target: Target) -> str:
    """One more partition, which a new producer writes to, while the group works."""
    count = target.clients.partitions_count + 1

    def is_granted() -> bool:
        try:
            with Cluster(target.cluster.bootstrap, _OPTIONS) as client:
                refused = Admin(client).create_partitions({TOPIC: count})[TOPIC]
        except ClientError:
            return False
        # It already has as many when an earlier response was lost.
        assert refused is None or refused.is_retriable or refused.code is ErrorCode.INVALID_PARTITIONS, refused
        return refused is None or refused.code is ErrorCode.INVALID_PARTITIONS

    eventually(is_granted, every_s=_ASK_AGAIN_S)
    eventually(lambda: _seen_by_all(target), lambda counts: counts == {count}, every_s=_ASK_AGAIN_S)
    target.clients.write_to(count)
    return f"{TOPIC} has {count} partitions"


def _seen_by_all(target: Target) -> set[int]:
    """How many partitions each broker knows."""
    counts = set()
    for broker in target.cluster.brokers.values():
        try:
            with Cluster(broker.bootstrap, _OPTIONS) as client:
                (topic,) = Admin(client).describe_topics([TOPIC])
            counts.add(len(topic.partitions))
        except ClientError:
            counts.add(0)
    return counts


def change_settings(target: Target) -> str:
    """Some settings of the topic, one after the other; each broker must apply each, also one that is killed."""
    changes = {name: target.random.choice(texts) for name, texts in target.random.sample(_CHANGES, 3)}
    killed = target.any_broker()
    with target.servability.suspended(*(ALL if changes.get(_MIN_IN_SYNC[0]) == _ALL_IN_SYNC else ())):
        killed.kill()
        killed.launch()
        for name, text in changes.items():
            _set(target, name, text)
        killed.wait_until_ready()
        # With three of three no broker may be away, and the next fault stops one.
        _set(target, *_MIN_IN_SYNC)
    return f"{TOPIC} got {changes}, broker {killed.node_id} killed meanwhile"


def _set(target: Target, name: str, text: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)

    def is_granted() -> bool:
        try:
            with Cluster(target.cluster.bootstrap, _OPTIONS) as client:
                Admin(client).alter_configs(resource, [ConfigChange(name, ConfigOperation.SET, text)])
        except ClientError as refused:
            if not refused.is_retriable:
                raise
            return False
        return True

    def seen_by_all() -> set[str | None]:
        seen = set()
        for broker in target.cluster.brokers.values():
            with Cluster(broker.bootstrap, _OPTIONS) as client:
                seen.add(Admin(client).describe_configs(resource, [name])[name].value)
        return seen

    eventually(is_granted, every_s=_ASK_AGAIN_S)
    target.cluster.wait_for(f"{name}={text} at every broker", seen_by_all, lambda seen: seen == {text})


TOPIC_FAULTS: Final[Mapping[str, Fault]] = {
    "recreate-topic": recreate_topic,
    "recreate-topic-while-one-is-away": recreate_topic_while_one_is_away,
    "move-replica": move_replica,
    "move-replica-and-kill": move_replica_and_kill,
    "move-leaders": move_leaders,
    "grow-topic": grow_topic,
    "change-settings": change_settings,
}
