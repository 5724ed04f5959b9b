"""Access rules in Kafka's terms and numbers (KIP-11, KIP-290): a pattern of resources, and an entry that allows or
denies an operation on them to a principal.  Filters select rules to describe or delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv6Address
from typing import Final, NamedTuple, TypeVar

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

WILDCARD: Final = "*"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection without a login or a client certificate."""

EVERY_PRINCIPAL: Final = "User:*"

# In characters: a tree node holds all entries of a pattern, and its path the name.
NAME_LENGTH_MAX: Final = 1_000
PRINCIPAL_LENGTH_MAX: Final = 1_000


class _Named(IntEnum):
    @property
    def label(self) -> str:
        """Kafka's name, as its tools print and parse it in any case: `DescribeConfigs`."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class ResourceType(_Named):
    """What a rule protects; `ANY` is for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How a name selects resources; ANY and MATCH are only for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    """What a rule allows or denies; `ANY` is for filters, `ALL` includes every other."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    """`DENY` wins over `ALLOW`; `ANY` is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


# The operations that a resource has (KIP-430), of which the protocol shows a caller those that it may do.
TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def _bits(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)


# The same as the protocol's bits: without an authorizer every client may do all.
TOPIC_OPERATION_BITS: Final = _bits(TOPIC_OPERATIONS)
GROUP_OPERATION_BITS: Final = _bits(GROUP_OPERATIONS)
CLUSTER_OPERATION_BITS: Final = _bits(CLUSTER_OPERATIONS)


class ResourcePattern(NamedTuple):
    """The resources of a rule: the one of this name, all (a literal `*`), or those whose names start with it."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str


class AccessEntry(NamedTuple):
    """What a principal (`User:alice`; `User:*` is every one) from a host (an address; `*` is any) may or may not do."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """One access rule: Kafka's AclBinding."""

    pattern: ResourcePattern
    entry: AccessEntry

    def __str__(self) -> str:
        pattern, entry = self
        name = f"{pattern.name}*" if pattern.pattern_type is PatternType.PREFIXED else pattern.name
        return (
            f"{entry.permission.label} {entry.operation.label} on {pattern.resource_type.label} {name} "
            f"to {entry.principal} from {entry.host}"
        )


class AclFilter(NamedTuple):
    """Selects access rules; None and ANY match all values of their field.

    `pattern_type` MATCH selects all patterns that apply to the resource of this name: its own, `*`, and prefixes of it.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def matches_entry(self, entry: AccessEntry) -> bool:
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, acl: Acl) -> bool:
        return self.matches_pattern(acl.pattern) and self.matches_entry(acl.entry)


def check_acl(acl: Acl) -> None:
    """Raise `RequestError` for a rule that cannot be created.

    As in Apache Kafka the name need not be a legal one, nor the host an address, and the operation need not be one that
    the resource has.  A filter's value is UNKNOWN_SERVER_ERROR there, INVALID_REQUEST here.
    """
    (resource_type, pattern_type, name), (principal, host, operation, permission) = acl
    problem = None
    if resource_type is ResourceType.ANY or operation is Operation.ANY or permission is Permission.ANY:
        problem = "ANY selects rules and cannot be part of one"
    elif pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"a rule's pattern is LITERAL or PREFIXED, not {pattern_type.name}"
    elif not name:
        problem = "a rule needs the name of its resource"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"a resource's name has at most {NAME_LENGTH_MAX} characters"
    elif resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        problem = f"the only resource of type CLUSTER is {CLUSTER_NAME!r}, not {name!r}"
    elif not is_principal(principal):
        problem = f"a principal is written TYPE:NAME, as in User:alice, not {principal!r}"
    elif len(principal) > PRINCIPAL_LENGTH_MAX or len(host) > PRINCIPAL_LENGTH_MAX:
        problem = f"a principal and a host have at most {PRINCIPAL_LENGTH_MAX} characters"
    elif not host:
        problem = "a rule needs a host; * is any"
    if problem is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)


def canonical_host(text: str) -> str:
    """An address in one spelling, so that a rule applies to it in each: Java writes `0:0:0:0:0:0:0:1` for `::1`.

    Other text, which is no client's address, is returned as it is.
    """
    if ":" not in text:
        return text
    try:
        address = IPv6Address(text)
    except ValueError:
        return text
    return str(address.ipv4_mapped or address)


def is_principal(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


Member = TypeVar("Member", bound=_Named)


def from_label(members: type[Member], label: str) -> Member:
    """The member of this name in Kafka's or the enumeration's form, in any case.  Raises `ValueError`."""
    found = _LABELS[members].get(label.replace("_", "").replace("-", "").lower())
    if not isinstance(found, members):
        names = ", ".join(each.label for each in members if each.name not in ("ANY", "MATCH"))
        raise ValueError(f"{label!r} is not one of {names}")
    return found


_LABELS: Final[Mapping[type[_Named], Mapping[str, _Named]]] = {
    members: {each.label.lower(): each for each in members}
    for members in (ResourceType, PatternType, Operation, Permission)
}
