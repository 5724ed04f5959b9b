"""The resource of a configuration request (topic, broker or group), checked; and the answers to changes of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.broker.context import BrokerContext
from ottla.broker.handlers.error_text import error_text
from ottla.broker.net.limits import GROUP_ID_LENGTH_MAX
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import topic_name_problem
from ottla.runtime.loop_offload import LoopOffload

# Of one resource in one request.  A topic has 40.
CONFIGS_OF_RESOURCE_MAX: Final = 1_000


class ResourceType(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class NamedResource(Protocol):
    """A resource of AlterConfigs or of IncrementalAlterConfigs."""

    resource_type: int
    resource_name: str


class Outcome(NamedTuple):
    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


Named = TypeVar("Named", bound=NamedResource)
Made = TypeVar("Made")


async def alter_each(
    resources: Sequence[Named], alter: Callable[[Named], Awaitable[None]], made: Callable[[Outcome], Made]
) -> list[Made]:
    """One after another, in the request's order: a failed change does not prevent the others.

    A resource that is named several times is answered once.  `made`: an outcome as the response has it.
    """
    turn = LoopOffload()
    named: dict[tuple[int, str], Named] = {}
    named_twice: set[tuple[int, str]] = set()
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        if named.setdefault(key, resource) is not resource:
            named_twice.add(key)
        await turn.pause()
    outcomes = []
    for key, resource in named.items():
        await turn.pause()
        outcome = Outcome(*key)
        try:
            if key in named_twice:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the resource is there twice in the request")
            await alter(resource)
        except OttlaError as error:
            outcome = outcome._replace(error_code=error.error_code, error_message=error_text(error))
        outcomes.append(made(outcome))
    return outcomes


def require_few_settings(count: int) -> None:
    """Raise `RequestError` for more settings than any resource has."""
    if count > CONFIGS_OF_RESOURCE_MAX:
        problem = f"no resource has {count} settings: {CONFIGS_OF_RESOURCE_MAX} are taken"
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)


def require_topic(context: BrokerContext, name: str) -> None:
    """Raise `RequestError` unless there is a topic of this name."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in context.topics.by_name:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def require_group_name(name: str) -> None:
    """Raise `RequestError` unless a group could have this id; whether it exists does not matter."""
    if name == "":
        raise RequestError(ErrorCode.INVALID_REQUEST, "a group's id is needed: nothing is set for all groups at once")
    if len(name) > GROUP_ID_LENGTH_MAX:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"a group's id has {GROUP_ID_LENGTH_MAX} characters at most")


def is_every_broker(context: BrokerContext, name: str) -> bool:
    """Whether the resource is every broker (an empty name), or else this broker.

    Raises `RequestError` for another broker: only it knows its settings.
    """
    if name == "":
        return True
    if name != str(context.node_id):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"this is broker {context.node_id}; {name!r} is neither its id nor empty"
        )
    return False


def refuse_broker_changes(context: BrokerContext, name: str, changed: Iterable[str]) -> None:
    """Raise `RequestError` when something of a broker would be changed; no change at all is allowed."""
    is_every_broker(context, name)
    settings = sorted(changed)
    if settings:
        problem = f"a broker's settings are read when it starts: {', '.join(settings)} cannot be changed at run time"
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)


def unknown_type(resource_type: int) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")
