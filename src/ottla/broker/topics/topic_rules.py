"""Rules for topics that are created or grown: their replicas and settings.  Errors are `RequestError`."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from ottla.broker.context import NewTopic
from ottla.broker.partitions.topic_configs import log_config
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.placement import placed, placed_further
from ottla.coordination.topics_view import Topic
from ottla.model.broker_settings import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, RequestError
from ottla.model.identifiers import INTERNAL_TOPICS, NodeId
from ottla.model.settings import BrokerSettings
from ottla.runtime.offload import Offload

DEFAULT_COUNT: Final = -1
# Each partition is a directory with open files; a typing error must not fill the disk with them.
PARTITIONS_OF_TOPIC_MAX: Final = 10_000


# Of one partition: more than any cluster has brokers.
REPLICAS_MAX: Final = 1_000


def new_assignment(new: NewTopic, live: BrokersView, settings: BrokerSettings) -> list[list[NodeId]]:
    """The replicas of each partition of a new topic: as requested, or spread over the live brokers."""
    if new.assignment is not None:
        return _given_assignment(new, live)
    count = settings[NUM_PARTITIONS] if new.partitions_count == DEFAULT_COUNT else new.partitions_count
    factor = new.replication_factor
    if factor == DEFAULT_COUNT:
        factor = settings[DEFAULT_REPLICATION_FACTOR]
    if not 0 < count <= PARTITIONS_OF_TOPIC_MAX:
        problem = f"a topic has 1 to {PARTITIONS_OF_TOPIC_MAX} partitions, not {count}"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, problem)
    _require_brokers(factor, live)
    return placed(count, factor, _racks(live), secrets.randbelow)


def added_assignment(
    topic: Topic, count: int, given: Sequence[Sequence[int]] | None, live: BrokersView
) -> list[list[NodeId]]:
    """The replicas of the partitions that make `topic` one of `count`; `given` lists those of each added one."""
    present = len(topic.partitions)
    if topic.name in INTERNAL_TOPICS:
        # A group's partition follows from this count.
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the partitions of {topic.name} are fixed")
    if count == present:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {counted(present, 'partition')} already"
        )
    if count < present:
        problem = f"topic {topic.name!r} has {present} partitions, {count} would take some away"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, problem, hint="partitions can be added only")
    if count > PARTITIONS_OF_TOPIC_MAX:
        problem = f"a topic has at most {PARTITIONS_OF_TOPIC_MAX} partitions, not {count}"
        raise RequestError(ErrorCode.INVALID_PARTITIONS, problem)
    if given is not None:
        if len(given) != count - present:
            problem = f"{counted(count - present, 'partition is', 'partitions are')} added, and {len(given)} assigned"
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        added = [_checked_replicas(index, replicas, live) for index, replicas in enumerate(given, present)]
        factor = len(topic.partitions[0].target)
        if any(len(replicas) != factor for replicas in added):
            problem = f"the partitions of topic {topic.name!r} have {counted(factor, 'replica')} each"
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        return added
    replicas_of_present = [partition.target for partition in topic.partitions]
    _require_brokers(len(replicas_of_present[0]), live)
    return placed_further(replicas_of_present, count - present, _racks(live))


def _given_assignment(new: NewTopic, live: BrokersView) -> list[list[NodeId]]:
    assert new.assignment is not None
    if new.partitions_count != DEFAULT_COUNT or new.replication_factor != DEFAULT_COUNT:
        problem = "a replica assignment excludes a partition count and a replication factor"
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)
    if sorted(new.assignment) != list(range(len(new.assignment))) or not new.assignment:
        problem = "a replica assignment numbers its partitions from 0 without a gap"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    assignment = [_checked_replicas(index, new.assignment[index], live) for index in sorted(new.assignment)]
    if len({len(replicas) for replicas in assignment}) > 1:
        problem = "the partitions of a topic have the same number of replicas each"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return assignment


def _checked_replicas(index: int, replicas: Sequence[int], live: BrokersView) -> list[NodeId]:
    if len(replicas) > REPLICAS_MAX:
        problem = f"partition {index} is assigned to {len(replicas)} brokers, {REPLICAS_MAX} are taken"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if not replicas or len(set(replicas)) < len(replicas):
        problem = f"partition {index} needs at least one replica, each only once (given: {list(replicas)})"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    missing = sorted(set(replicas) - live.by_id.keys())
    if missing:
        problem = f"partition {index} is assigned to {list(replicas)}; {_live_brokers(live)}"
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return [NodeId(replica) for replica in replicas]


def _require_brokers(factor: int, live: BrokersView) -> None:
    if factor <= 0:
        problem = f"the replication factor must be positive, not {factor}"
    elif factor > len(live.by_id):
        brokers = "this is the only one" if len(live.by_id) == 1 else f"{len(live.by_id)} are live"
        problem = f"replication factor {factor} needs as many brokers, and {brokers}"
    else:
        return
    raise RequestError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def _live_brokers(live: BrokersView) -> str:
    if len(live.by_id) == 1:
        return f"the only broker is {min(live.by_id)}"
    return f"the live brokers are {', '.join(map(str, sorted(live.by_id)))}"


def _racks(live: BrokersView) -> dict[NodeId, str | None]:
    return {node_id: broker.registration.rack for node_id, broker in live.by_id.items()}


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


class NamedTopic(Protocol):
    """A topic in a request."""

    name: str


Named = TypeVar("Named", bound=NamedTopic)


async def topics_by_name(topics: Sequence[Named], turn: Offload) -> tuple[dict[str, Named], Collection[str]]:
    """The topics in the order of their first places, and the names that occur several times."""
    named: dict[str, Named] = {}
    named_twice: set[str] = set()
    for topic in topics:
        if named.setdefault(topic.name, topic) is not topic:
            named_twice.add(topic.name)
        await turn.pause()
    return named, named_twice
