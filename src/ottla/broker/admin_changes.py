"""What a request has changed, for the security log: the resources of the APIs that administrators use, with the error
code of each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ottla.broker.context import Call
from ottla.broker.net.security_log import RESOURCES_MAX, Change, SecurityLog
from ottla.protocol.api import ApiKey
from ottla.runtime.steps import Steps
from ottla.security.acl import (
    CLUSTER_NAME,
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

# Read as far as it is reported: a request may name a hundred thousand resources.
Outcomes: TypeAlias = Iterator[tuple[str, int]]

_CONFIG_OWNERS: Final = {2: "TOPIC", 4: "BROKER", 32: "GROUP"}


def _created_topics(request: Any, response: Any) -> Outcomes:
    return ((f"TOPIC:{each.name}", each.error_code) for each in response.topics)


def _deleted_topics(request: Any, response: Any) -> Outcomes:
    return ((f"TOPIC:{each.name or each.topic_id}", each.error_code) for each in response.responses)


def _grown_topics(request: Any, response: Any) -> Outcomes:
    return ((f"TOPIC:{each.name}", each.error_code) for each in response.results)


def _records(request: Any, response: Any) -> Outcomes:
    return _partitions(response.topics)


def _moves(request: Any, response: Any) -> Outcomes:
    yield from _cluster(response)
    yield from _partitions(response.responses)


def _partitions(topics: Any) -> Outcomes:
    for topic in topics:
        for each in topic.partitions:
            yield f"TOPIC:{topic.name}-{each.partition_index}", each.error_code


def _cluster(response: Any) -> Outcomes:
    """Where the whole request was refused."""
    if response.error_code:
        yield f"CLUSTER:{CLUSTER_NAME}", response.error_code


def _configs(request: Any, response: Any) -> Outcomes:
    for each in response.responses:
        owner = _CONFIG_OWNERS.get(each.resource_type, each.resource_type)
        yield f"{owner}:{each.resource_name}", each.error_code


def _elections(request: Any, response: Any) -> Outcomes:
    yield from _cluster(response)
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            yield f"TOPIC:{topic.topic}-{each.partition_id}", each.error_code


def _created_acls(request: Any, response: Any) -> Outcomes:
    for each, result in zip(request.creations, response.results, strict=True):
        yield _acl_text(each, each.resource_pattern_type), result.error_code


def _deleted_acls(request: Any, response: Any) -> Outcomes:
    for result in response.filter_results:
        if result.error_code:
            yield "ACL", result.error_code
        for each in result.matching_acls:
            yield _acl_text(each, each.pattern_type), each.error_code


def _acl_text(rule: Any, pattern_type: int) -> str:
    try:
        return f"ACL:{_acl(rule, pattern_type)}"
    except ValueError:
        # A refused request may have any number for a type or an operation.
        return "ACL"


def _acl(rule: Any, pattern_type: int) -> Acl:
    pattern = ResourcePattern(ResourceType(rule.resource_type), PatternType(pattern_type), rule.resource_name)
    operation, permission = Operation(rule.operation), Permission(rule.permission_type)
    return Acl(pattern, AccessEntry(rule.principal, rule.host, operation, permission))


def _credentials(request: Any, response: Any) -> Outcomes:
    return ((f"USER:{each.user}", each.error_code) for each in response.results)


def _quotas(request: Any, response: Any) -> Outcomes:
    for each in response.entries:
        parts = (f"{part.entity_type}={part.entity_name or '<default>'}" for part in each.entity)
        yield f"QUOTA:{','.join(parts)}", each.error_code


def _deleted_groups(request: Any, response: Any) -> Outcomes:
    return ((f"GROUP:{each.group_id}", each.error_code) for each in response.results)


def _deleted_offsets(request: Any, response: Any) -> Outcomes:
    yield f"GROUP:{request.group_id}", response.error_code


CHANGING: Final[Mapping[ApiKey, Callable[[Any, Any], Outcomes]]] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: _created_topics,
        ApiKey.DELETE_TOPICS: _deleted_topics,
        ApiKey.DELETE_RECORDS: _records,
        ApiKey.CREATE_PARTITIONS: _grown_topics,
        ApiKey.ALTER_CONFIGS: _configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
        ApiKey.ELECT_LEADERS: _elections,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _moves,
        ApiKey.CREATE_ACLS: _created_acls,
        ApiKey.DELETE_ACLS: _deleted_acls,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _credentials,
        ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
        ApiKey.DELETE_GROUPS: _deleted_groups,
        ApiKey.OFFSET_DELETE: _deleted_offsets,
    }
)


class ChangeReports:
    """Reports the changes of requests that were served."""

    def __init__(self, security_log: SecurityLog) -> None:
        self._log: Final = security_log

    def report(self, api: ApiKey, call: Call, request: object, response: object) -> None:
        """A request that only checks, or names nothing, is not reported."""
        if getattr(request, "validate_only", False):
            return
        outcomes = list(islice(CHANGING[api](request, response), RESOURCES_MAX + 1))
        if outcomes:
            host = call.client_host.removeprefix("/")
            self._log.changed(Change(call.principal, host, call.listener_name, call.client_id, api, outcomes))

    def reporting(
        self, api: ApiKey, call: Call, request: object, reply: Callable[[object], None]
    ) -> Callable[[object], None]:
        """`reply`, after a report."""

        def steps_of(making: Steps[object]) -> Steps[object]:
            response = yield from making
            self.report(api, call, request, response)
            return response

        def reported(response: object) -> None:
            if isinstance(response, Generator):
                reply(steps_of(response))
            else:
                self.report(api, call, request, response)
                reply(response)

        return reported
