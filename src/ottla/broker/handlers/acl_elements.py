"""The access rules and filters of requests, from numbers; an unknown number breaks the protocol, as in Apache Kafka."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from ottla.model.errors import WireError
from ottla.protocol.schemas.create_acls import AclCreation
from ottla.security.acl import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

NO_AUTHORIZER: Final = "No Authorizer is configured."
"""The words of Apache Kafka."""


class WireFilter(Protocol):
    """A filter of DescribeAcls or DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


Member = TypeVar("Member", ResourceType, PatternType, Operation, Permission)


def acl_of(creation: AclCreation) -> Acl:
    """Raises `WireError`."""
    return Acl(
        ResourcePattern(
            _member(ResourceType, creation.resource_type),
            _member(PatternType, creation.resource_pattern_type),
            creation.resource_name,
        ),
        AccessEntry(
            creation.principal,
            creation.host,
            _member(Operation, creation.operation),
            _member(Permission, creation.permission_type),
        ),
    )


def filter_of(wanted: WireFilter) -> AclFilter:
    """Raises `WireError`."""
    return AclFilter(
        _member(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _member(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _member(Operation, wanted.operation),
        _member(Permission, wanted.permission_type),
    )


def _member(members: type[Member], number: int) -> Member:
    try:
        return members(number)
    except ValueError as error:
        raise WireError(f"{number} is not a {members.__name__} of access rules") from error
