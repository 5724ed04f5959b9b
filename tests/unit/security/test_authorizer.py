from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.security.acl import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    AccessEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.authorizer import AclIndex, Authorizer

TOPIC = ResourceType.TOPIC
ALICE = "User:alice"
HOST = "10.0.0.1"


def pattern(name: str, pattern_type: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, pattern_type, name)


def entry(
    operation: Operation, permission: Permission = Permission.ALLOW, principal: str = ALICE, host: str = "*"
) -> AccessEntry:
    return AccessEntry(principal, host, operation, permission)


def authorizer_of(**patterns: AccessEntry) -> Authorizer:
    authorizer = Authorizer()
    authorizer.follow(AclIndex(1, {pattern(name): [each] for name, each in patterns.items()}))
    return authorizer


def test_a_super_user_may_do_what_a_rule_denies() -> None:
    authorizer = Authorizer([ALICE])
    authorizer.follow(AclIndex(1, {pattern("*"): [entry(Operation.ALL, Permission.DENY, "User:*")]}))
    assert authorizer.decide(ALICE, HOST, Operation.WRITE, TOPIC, "orders").is_allowed


def test_a_super_user_in_another_case_is_another_user() -> None:
    assert not Authorizer([ALICE]).decide("User:Alice", HOST, Operation.READ, TOPIC, "orders").is_allowed


@pytest.mark.parametrize(
    ("of_rule", "of_client"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0:7", "2001:db8::7"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_rule_applies_to_its_address_in_each_spelling(of_rule: str, of_client: str) -> None:
    authorizer = authorizer_of(
        orders=entry(Operation.READ), clicks=entry(Operation.READ, Permission.DENY, host=of_rule)
    )
    rights = authorizer.rights_of(ALICE, of_client)
    assert rights.allows(Operation.READ, TOPIC, "orders")
    decision = rights.decide(Operation.READ, TOPIC, "clicks")
    assert not decision.is_allowed
    assert decision.rule.startswith("Deny")
    assert authorizer.rights_of(ALICE, "::2").decide(Operation.READ, TOPIC, "clicks").rule == "no rule allows it"


def test_a_prefix_that_denies_wins_over_a_literal_that_allows() -> None:
    authorizer = Authorizer()
    authorizer.follow(
        AclIndex(
            1,
            {
                pattern("orders"): [entry(Operation.READ)],
                pattern("ord", PatternType.PREFIXED): [entry(Operation.READ, Permission.DENY)],
            },
        )
    )
    decision = authorizer.decide(ALICE, HOST, Operation.READ, TOPIC, "orders")
    assert not decision.is_allowed
    assert decision.rule == "Deny Read on Topic ord* to User:alice from *"


def test_a_denied_read_leaves_the_describe_that_another_rule_implies() -> None:
    authorizer = Authorizer()
    entries = [entry(Operation.READ, Permission.DENY), entry(Operation.WRITE)]
    authorizer.follow(AclIndex(1, {pattern("orders"): entries}))
    assert authorizer.decide(ALICE, HOST, Operation.DESCRIBE, TOPIC, "orders").is_allowed
    assert not authorizer.decide(ALICE, HOST, Operation.READ, TOPIC, "orders").is_allowed


def test_uncovered_resources_are_open_only_when_the_setting_says_so() -> None:
    index = AclIndex(1, {pattern("orders"): [entry(Operation.READ, principal="User:bob")]})
    for is_open in (False, True):
        authorizer = Authorizer(allows_uncovered=is_open)
        authorizer.follow(index)
        assert authorizer.decide(ALICE, HOST, Operation.READ, TOPIC, "clicks").is_allowed is is_open
        # The rule of another principal covers it.
        assert not authorizer.decide(ALICE, HOST, Operation.READ, TOPIC, "orders").is_allowed
        assert authorizer.allows_any(ALICE, HOST, Operation.WRITE, TOPIC) is is_open


def test_the_operations_of_a_resource_are_kafkas_bits() -> None:
    rights = Authorizer([ALICE]).rights_of(ALICE, HOST)
    assert rights.authorized_operations(TOPIC_OPERATIONS, TOPIC, "orders") == 3576
    assert rights.authorized_operations(GROUP_OPERATIONS, ResourceType.GROUP, "g") == 3400
    assert rights.authorized_operations(CLUSTER_OPERATIONS, ResourceType.CLUSTER, "kafka-cluster") == 8096


def test_read_shows_read_and_describe_among_the_authorized_operations() -> None:
    rights = authorizer_of(orders=entry(Operation.READ)).rights_of(ALICE, HOST)
    bits = rights.authorized_operations(TOPIC_OPERATIONS, TOPIC, "orders")
    assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE


def test_a_topic_name_that_is_no_text_is_denied_to_all_but_stays_an_answer() -> None:
    rights = Authorizer([ALICE]).rights_of(ALICE, HOST)
    assert not rights.may_write(b"\xff")
    assert rights.may_write(b"orders")


def test_connections_of_one_principal_and_address_share_their_decisions() -> None:
    authorizer = Authorizer()
    rights = authorizer.rights_of(ALICE, HOST)
    assert authorizer.rights_of(ALICE, HOST) is rights
    assert authorizer.rights_of(ALICE, "10.0.0.2") is not rights


def test_decisions_that_are_kept_stay_within_their_bound() -> None:
    authorizer = authorizer_of(**{"*": entry(Operation.ALL)})
    rights = authorizer.rights_of(ALICE, HOST)
    for number in range(25_000):
        assert rights.may_write(b"topic-%d" % number)
    assert len(rights._writable) <= 10_000
    assert len(rights._decisions) <= 10_000


class Unread(list[AccessEntry]):
    def __iter__(self) -> Iterator[AccessEntry]:
        raise AssertionError("these rules are not about the request")


def test_a_decision_reads_only_the_rules_of_its_resource_and_principal() -> None:
    users = [f"User:{number}" for number in range(10)]
    index = AclIndex(
        1,
        {
            pattern(f"topic-{number}"): [entry(Operation.READ, principal=user) for user in users]
            for number in range(1_000)
        },
    )
    of_type = index._by_type[TOPIC]._literal
    for name, (of, by_principal) in list(of_type.items()):
        kept = {"User:3"} if name == "topic-77" else set()
        of_type[name] = of, {user: by_principal[user] if user in kept else Unread() for user in users}
    decision = index.decide("User:3", HOST, Operation.READ, TOPIC, "topic-77")
    assert decision is not None
    assert decision.is_allowed
