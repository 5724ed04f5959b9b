"""What a configuration request names: a topic, a broker or a group, checked."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from ottla.broker.context import BrokerContext
from ottla.broker.limits import GROUP_ID_LENGTH_MAX
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import topic_name_problem


class ResourceType(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def require_topic(broker: BrokerContext, name: str) -> None:
    """Raise `RequestError` unless there is a topic of this name."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in broker.topics.by_name:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def require_group_name(name: str) -> None:
    """Raise `RequestError` unless a group could have this id; whether there is one does not matter."""
    if name == "":
        raise RequestError(ErrorCode.INVALID_REQUEST, "a group's id is needed: nothing is set for all groups at once")
    if len(name) > GROUP_ID_LENGTH_MAX:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"a group's id has {GROUP_ID_LENGTH_MAX} characters at most")


def is_every_broker(broker: BrokerContext, name: str) -> bool:
    """Whether the resource is what holds for every broker (an empty name), or else this broker.

    Raises `RequestError` for another broker: only it knows its settings.
    """
    if name == "":
        return True
    if name != str(broker.node_id):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}; {name!r} is neither its id nor empty"
        )
    return False


def refuse_broker_changes(broker: BrokerContext, name: str, changed: Iterable[str]) -> None:
    """Raise `RequestError` when something of a broker would be changed; no change at all is allowed."""
    is_every_broker(broker, name)
    settings = sorted(changed)
    if settings:
        problem = f"a broker's settings are read when it starts: {', '.join(settings)} cannot be changed at run time"
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)


def unknown_type(resource_type: int) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")
