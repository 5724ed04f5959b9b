"""Decisions by the index are those of a model that reads every rule, and filters select what Kafka's rules say."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

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
from ottla.security.authorizer import AclIndex, Authorizer
from tests.property.property_settings import example_settings

NAMES = ("a", "ab", "abc", "b", "ba", "*")
PRINCIPALS = ("User:a", "User:b", "User:A")
HOSTS = ("10.0.0.1", "10.0.0.2")
OPERATIONS = [each for each in Operation if each is not Operation.ANY]

PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(NAMES),
)
ENTRIES = st.builds(
    AccessEntry,
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
ACLS = st.lists(st.builds(Acl, PATTERNS, ENTRIES), max_size=12, unique=True)
REQUESTED = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from([*NAMES, "abcd", "c"]),
)
Requested = tuple[str, str, Operation, ResourceType, str]

IMPLIED = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


def index_of(acls: Sequence[Acl], version: int = 1) -> AclIndex:
    patterns: dict[ResourcePattern, list[AccessEntry]] = {}
    for acl in acls:
        patterns.setdefault(acl.pattern, []).append(acl.entry)
    return AclIndex(version, patterns)


def covers(pattern: ResourcePattern, resource_type: ResourceType, name: str) -> bool:
    if pattern.resource_type is not resource_type:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def is_about(entry: AccessEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, "User:*") and entry.host in (host, "*")


def model(acls: Sequence[Acl], requested: Requested, *, allows_uncovered: bool) -> bool:
    principal, host, operation, resource_type, name = requested
    covering = [acl for acl in acls if covers(acl.pattern, resource_type, name)]
    if not covering:
        return allows_uncovered
    entries = [acl.entry for acl in covering if is_about(acl.entry, principal, host)]
    if any(each.permission is Permission.DENY and each.operation in (operation, Operation.ALL) for each in entries):
        return False
    allowing = (operation, Operation.ALL, *IMPLIED.get(operation, ()))
    return any(each.permission is Permission.ALLOW and each.operation in allowing for each in entries)


@given(ACLS, REQUESTED, st.booleans())
@example_settings(600)
def test_decisions_are_those_of_a_model_that_reads_every_rule(
    acls: list[Acl], requested: Requested, allows_uncovered: bool
) -> None:
    authorizer = Authorizer(["User:root"], allows_uncovered=allows_uncovered)
    authorizer.follow(index_of(acls))
    principal, host, operation, resource_type, name = requested
    expected = model(acls, requested, allows_uncovered=allows_uncovered)
    rights = authorizer.rights_of(principal, host)
    assert authorizer.decide(*requested).is_allowed is expected
    # The second answer is the kept one.
    assert [rights.allows(operation, resource_type, name) for _ in range(2)] == [expected, expected]
    assert authorizer.rights_of("User:root", host).allows(operation, resource_type, name)


@given(ACLS, ACLS, st.lists(REQUESTED, min_size=1, max_size=5))
@example_settings(200)
def test_rights_follow_the_rules_that_replace_those_of_before(
    before: list[Acl], after: list[Acl], many: list[Requested]
) -> None:
    authorizer = Authorizer()
    held = [authorizer.rights_of(principal, host) for principal, host, *_ in many]
    for version, acls in enumerate((before, after), 1):
        authorizer.follow(index_of(acls, version))
        for rights, requested in zip(held, many, strict=True):
            _, _, operation, resource_type, name = requested
            expected = model(acls, requested, allows_uncovered=False)
            assert rights.allows(operation, resource_type, name) is expected
            if resource_type is ResourceType.TOPIC and operation is Operation.WRITE:
                assert [rights.may_write(name.encode()) for _ in range(2)] == [expected, expected]
            if resource_type is ResourceType.TOPIC and operation is Operation.READ:
                assert [rights.may_read(name.encode()) for _ in range(2)] == [expected, expected]


@given(ACLS, REQUESTED)
@example_settings(400)
def test_a_right_on_any_resource_is_an_allow_that_no_wider_deny_covers(acls: list[Acl], requested: Requested) -> None:
    principal, host, operation, resource_type, _ = requested
    entries = [
        acl
        for acl in acls
        if acl.pattern.resource_type is resource_type
        and is_about(acl.entry, principal, host)
        and acl.entry.operation in (operation, Operation.ALL)
    ]
    denied = [acl.pattern for acl in entries if acl.entry.permission is Permission.DENY]
    expected = any(
        acl.entry.permission is Permission.ALLOW and not any(is_within(acl.pattern, each) for each in denied)
        for acl in entries
    )
    authorizer = Authorizer()
    authorizer.follow(index_of(acls))
    assert authorizer.allows_any(principal, host, operation, resource_type) is expected


def is_within(inner: ResourcePattern, outer: ResourcePattern) -> bool:
    """Whether every resource of `inner` is one of `outer`."""
    if outer.pattern_type is PatternType.LITERAL:
        return outer.name == "*" or inner == outer
    is_all = inner.pattern_type is PatternType.LITERAL and inner.name == "*"
    return not is_all and inner.name.startswith(outer.name)


FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP]),
    st.none() | st.sampled_from(NAMES),
    st.sampled_from(PatternType),
    st.none() | st.sampled_from([*PRINCIPALS, "User:*"]),
    st.none() | st.sampled_from([*HOSTS, "*"]),
    st.sampled_from(Operation),
    st.sampled_from(Permission),
)


@given(FILTERS, st.builds(Acl, PATTERNS, ENTRIES))
@example_settings(600)
def test_a_filter_selects_the_rules_whose_every_field_it_matches(wanted: AclFilter, acl: Acl) -> None:
    pattern, entry = acl
    if wanted.name is None:
        is_named = True
    elif wanted.pattern_type is PatternType.MATCH:
        is_named = covers(pattern, pattern.resource_type, wanted.name)
    else:
        is_named = wanted.name == pattern.name
    expected = (
        is_named
        and wanted.resource_type in (ResourceType.ANY, pattern.resource_type)
        and wanted.pattern_type in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type)
        and wanted.principal in (None, entry.principal)
        and wanted.host in (None, entry.host)
        and wanted.operation in (Operation.ANY, entry.operation)
        and wanted.permission in (Permission.ANY, entry.permission)
    )
    assert wanted.matches(acl) is expected
