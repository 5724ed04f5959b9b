"""Rules for topics that are created or grown: their replicas and settings.  Pure; errors are `RequestError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.broker.context import NewTopic
from ottla.broker.log_configs import log_config
from ottla.coordination.topics_view import Topic
from ottla.model.broker_settings import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, RequestError
from ottla.model.identifiers import INTERNAL_TOPICS, NodeId
from ottla.model.settings import BrokerSettings

DEFAULT_COUNT: Final = -1
# Each partition is a directory with open files; a typing error must not fill the disk with them.
PARTITIONS_OF_TOPIC_MAX: Final = 10_000


def new_assignment(new: NewTopic, node_id: NodeId, settings: BrokerSettings) -> list[list[NodeId]]:
    """The replicas of each partition of a new topic: as asked for, or the only broker for all."""
    if new.assignment is not None:
        return _given_assignment(new, node_id)
    count = settings[NUM_PARTITIONS] if new.partitions_count == DEFAULT_COUNT else new.partitions_count
    factor = new.replication_factor
    if factor == DEFAULT_COUNT:
        factor = settings[DEFAULT_REPLICATION_FACTOR]
    if not 0 < count <= PARTITIONS_OF_TOPIC_MAX:
        problem = f"a topic has 1 to {PARTITIONS_OF_TOPIC_MAX} partitions, not {count}"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, problem)
    if factor != 1:
        problem = f"replication factor {factor} needs as many brokers, and this is the only one"
        if factor <= 0:
            problem = f"the replication factor must be positive, not {factor}"
        raise RequestError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    return [[node_id] for _ in range(count)]


def added_assignment(
    topic: Topic, count: int, given: Sequence[Sequence[int]] | None, node_id: NodeId
) -> list[list[NodeId]]:
    """The replicas of the partitions that make `topic` one of `count`; `given` lists those of each added one."""
    present = len(topic.partitions)
    if topic.name in INTERNAL_TOPICS:
        # A group's partition follows from this count.
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the partitions of {topic.name} are fixed")
    if count == present:
        raise RequestError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {present} partition(s) already")
    if count < present:
        problem = f"topic {topic.name!r} has {present} partitions, {count} would take some away"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, problem, hint="partitions can be added only")
    if count > PARTITIONS_OF_TOPIC_MAX:
        problem = f"a topic has at most {PARTITIONS_OF_TOPIC_MAX} partitions, not {count}"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, problem)
    if given is not None:
        if len(given) != count - present:
            problem = f"{count - present} partition(s) are added, and {len(given)} are assigned"
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        for index, replicas in enumerate(given, present):
            _require_only_broker(index, replicas, node_id)
    return [[node_id] for _ in range(count - present)]


def _given_assignment(new: NewTopic, node_id: NodeId) -> list[list[NodeId]]:
    assert new.assignment is not None
    if new.partitions_count != DEFAULT_COUNT or new.replication_factor != DEFAULT_COUNT:
        problem = "a replica assignment excludes a partition count and a replication factor"
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)
    if sorted(new.assignment) != list(range(len(new.assignment))) or not new.assignment:
        problem = "a replica assignment numbers its partitions from 0 without a gap"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    for index, replicas in new.assignment.items():
        _require_only_broker(index, replicas, node_id)
    return [[node_id] for _ in new.assignment]


def _require_only_broker(index: int, replicas: Sequence[int], node_id: NodeId) -> None:
    if list(replicas) != [node_id]:
        problem = f"partition {index} is assigned to {list(replicas)}; the only broker is {node_id}"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def checked_config(config: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str]:
    """A new topic's own settings, if a log can use them."""
    given = {name: value for name, value in config.items() if value is not None}
    if len(given) < len(config):
        name = next(name for name, value in config.items() if value is None)
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{name} has no value")
    try:
        log_config(given, settings)
    except ConfigError as error:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(error), hint=error.hint) from error
    return given
