"""Guards: each divides a request before its handler gets it, and completes the handler's response.

A guard decides before anything is looked up, so that a refusal does not show whether a resource exists.  Elements
without the right are taken out of the request and answered in the response; where nothing is left, or the right is one
for the whole request, the handler is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ottla.broker.context import BrokerContext
from ottla.broker.net.access import Access
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.runtime.steps import Steps
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
# As Apache Kafka words them.
MESSAGES = {
    TOPIC_DENIED: "Topic authorization failed.",
    GROUP_DENIED: "Group authorization failed.",
    CLUSTER_DENIED: "Cluster authorization failed.",
    ID_DENIED: "Transactional Id authorization failed.",
}


class Caller(NamedTuple):
    """The sender of one request."""

    access: Access
    api: ApiKey
    api_version: int
    client_id: str | None

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether it has the right; a refusal is reported."""
        return self.access.allows(operation, resource_type, name, self.api, self.client_id)

    def sees(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """The same for what is left out of a response: nothing is reported."""
        return self.access.rights.allows(operation, resource_type, name)

    def allows_topic(self, operation: Operation, name: str) -> bool:
        return self.allows(operation, ResourceType.TOPIC, name)

    def allows_group(self, operation: Operation, name: str) -> bool:
        return self.allows(operation, ResourceType.GROUP, name)

    def allows_cluster(self, operation: Operation) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def sees_cluster(self, operation: Operation) -> bool:
        return self.sees(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, operations: Iterable[Operation], resource_type: ResourceType, name: str) -> int:
        """Those of `operations` that it may do, as the protocol's bits."""
        return self.access.rights.authorized_operations(operations, resource_type, name)


class Passed(NamedTuple):
    """The part of the request that its handler serves; `finish` completes the response."""

    request: Any
    finish: Callable[[Any], Steps[None]] | None = None


class Refused(NamedTuple):
    """The whole response: the handler is not called."""

    response: Any


Outcome = Passed | Refused
# The request's class is that of the API.
Guard = Callable[[Any, Caller, BrokerContext], Steps[Outcome]]


def divided(elements: Iterable[T], is_allowed: Callable[[T], bool]) -> Steps[tuple[list[T], list[T]]]:
    """The elements that are allowed, and those that are not, in their order."""
    allowed: list[T] = []
    denied: list[T] = []
    for each in elements:
        (allowed if is_allowed(each) else denied).append(each)
        yield
    return allowed, denied


def refused_topics(
    topics: Iterable[T],
    partitions_of: Callable[[T], Iterable[P]],
    partition_result: Callable[[P], R],
    topic_result: Callable[[T, list[R]], S],
) -> Steps[list[S]]:
    """The results of topics that are refused, with one for each partition that the request names."""
    refused: list[S] = []
    for topic in topics:
        results: list[R] = []
        for each in partitions_of(topic):
            results.append(partition_result(each))
            yield
        refused.append(topic_result(topic, results))
        yield
    return refused


def adding_topics(refused: list[Any]) -> Callable[[Any], Steps[None]]:
    """The `finish` of a response that also has the results of `refused_topics`."""

    def finish(response: Any) -> Steps[None]:
        yield
        response.topics += refused

    return finish


def of_cluster(operation: Operation, refused: Callable[[Any, Caller], object]) -> Guard:
    """The whole request needs `operation` on the cluster; `refused` makes the response without it."""

    def guard(request: Any, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
        yield
        if caller.allows_cluster(operation):
            return Passed(request)
        return Refused(refused(request, caller))

    return guard


def of_group(refused: Callable[[Any, Caller], object]) -> Guard:
    """A member's request needs READ on its group (`group_id`)."""

    def guard(request: Any, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
        yield
        if caller.allows_group(Operation.READ, request.group_id):
            return Passed(request)
        return Refused(refused(request, caller))

    return guard
