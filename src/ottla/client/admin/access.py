"""Reads and changes the users of SCRAM (KIP-554) and the access rules of all users (KIP-140, KIP-290)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.schemas.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
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
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import scram_hash
from ottla.security.scram_server import SALT_BYTES
from ottla.security.secret import Secret

# Of new credentials, as Kafka's tools do.
DEFAULT_ITERATIONS: Final = 8_192
_NUMBERS: Final = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}
_MECHANISMS: Final = {number: mechanism for mechanism, number in _NUMBERS.items()}


class UserCredential(NamedTuple):
    """How a user may log in by SCRAM; the password itself is not kept."""

    mechanism: SaslMechanism
    iterations: int


def set_password(
    cluster: Cluster,
    name: str,
    password: Secret,
    mechanisms: Sequence[SaslMechanism],
    iterations: int = DEFAULT_ITERATIONS,
) -> None:
    """Let a user log in by these mechanisms, with a new salt.  The password is not sent; raises BrokerRefused."""
    upsertions: list[ScramCredentialUpsertion] = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = scram_hash(mechanism).salted_password(password, salt, iterations)
        upsertions.append(ScramCredentialUpsertion(name, _NUMBERS[mechanism], iterations, salt, salted))
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=upsertions))


def delete_user(cluster: Cluster, name: str) -> None:
    """Delete all credentials of a user; raises BrokerRefused when there are none."""
    [found] = describe_users(cluster, [name]).values()
    deletions = [ScramCredentialDeletion(name, _NUMBERS[each.mechanism]) for each in found]
    _alter(cluster, AlterUserScramCredentialsRequest(deletions))


def describe_users(cluster: Cluster, names: Sequence[str] | None = None) -> dict[str, list[UserCredential]]:
    """The credentials of users, of all without names; raises BrokerRefused for one that has none."""
    request = DescribeUserScramCredentialsRequest(None if names is None else [UserName(name) for name in names])
    api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    response = cluster.call_any(api, request, DescribeUserScramCredentialsResponse)
    if response.error_code:
        raise BrokerRefused(error_code_of(response.error_code), "users", response.error_message)
    for result in response.results:
        if result.error_code:
            raise BrokerRefused(error_code_of(result.error_code), f"user {result.user}", result.error_message)
    return {
        result.user: [
            UserCredential(_MECHANISMS[info.mechanism], info.iterations)
            for info in result.credential_infos
            if info.mechanism in _MECHANISMS
        ]
        for result in response.results
    }


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    response = cluster.call_any(api, request, AlterUserScramCredentialsResponse)
    for result in response.results:
        if result.error_code:
            raise BrokerRefused(error_code_of(result.error_code), f"user {result.user}", result.error_message)


_HINT = "`authorizer.class.name` turns the broker's authorizer on"


def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The rules that the filter selects; raises BrokerRefused."""
    request = DescribeAclsRequest(*_filter_fields(wanted))
    response = cluster.call_any(ApiKey.DESCRIBE_ACLS, request, DescribeAclsResponse)
    _raise_refusal(response.error_code, "access rules", response.error_message)
    found: list[Acl] = []
    for resource in response.resources:
        pattern = _pattern(resource.resource_type, resource.pattern_type, resource.resource_name)
        found += [
            Acl(pattern, _entry(each.principal, each.host, each.operation, each.permission_type))
            for each in resource.acls
        ]
    return found


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> dict[Acl, BrokerRefused | None]:
    """Create rules; None is success, also for one that is there already."""
    request = CreateAclsRequest([_creation(acl) for acl in acls])
    response = cluster.call_any(ApiKey.CREATE_ACLS, request, CreateAclsResponse)
    return {
        acl: _refusal(row.error_code, str(acl), row.error_message)
        for acl, row in zip(acls, response.results, strict=True)
    }


def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[Acl]:
    """Delete the rules that any of the filters selects; returns them.  Raises BrokerRefused."""
    request = DeleteAclsRequest([DeleteAclsFilter(*_filter_fields(each)) for each in filters])
    response = cluster.call_any(ApiKey.DELETE_ACLS, request, DeleteAclsResponse)
    deleted: list[Acl] = []
    for result in response.filter_results:
        _raise_refusal(result.error_code, "access rules", result.error_message)
        for row in result.matching_acls:
            _raise_refusal(row.error_code, "access rules", row.error_message)
            pattern = _pattern(row.resource_type, row.pattern_type, row.resource_name)
            deleted.append(Acl(pattern, _entry(row.principal, row.host, row.operation, row.permission_type)))
    return deleted


def _filter_fields(wanted: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    return (
        wanted.resource_type,
        wanted.name,
        wanted.pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission,
    )


def _creation(acl: Acl) -> AclCreation:
    (resource_type, pattern_type, name), (principal, host, operation, permission) = acl
    return AclCreation(resource_type, name, pattern_type, principal, host, operation, permission)


def _pattern(resource_type: int, pattern_type: int, name: str) -> ResourcePattern:
    return ResourcePattern(_member(ResourceType, resource_type), _member(PatternType, pattern_type), name)


def _entry(principal: str, host: str, operation: int, permission: int) -> AccessEntry:
    return AccessEntry(principal, host, _member(Operation, operation), _member(Permission, permission))


Member = TypeVar("Member", ResourceType, PatternType, Operation, Permission)


def _member(members: type[Member], number: int) -> Member:
    try:
        return members(number)
    except ValueError as error:
        raise BrokerRefused(
            error_code_of(-1), "access rules", f"the broker has a {members.__name__} of number {number}"
        ) from error


def _refusal(code: int, subject: str, detail: str | None) -> BrokerRefused | None:
    if not code:
        return None
    error_code = error_code_of(code)
    return BrokerRefused(error_code, subject, detail, hint=_HINT if error_code.name == "SECURITY_DISABLED" else None)


def _raise_refusal(code: int, subject: str, detail: str | None) -> None:
    refusal = _refusal(code, subject, detail)
    if refusal is not None:
        raise refusal
