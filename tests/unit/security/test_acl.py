from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.security.acl import (
    AccessEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_acl,
    from_label,
)

ENTRY = AccessEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
ORDERS = ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "orders")


@pytest.mark.parametrize(
    "acl",
    [
        Acl(ORDERS, ENTRY),
        Acl(ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster"), ENTRY),
        Acl(ORDERS._replace(name="no legal/topic name"), ENTRY),
        Acl(ORDERS, ENTRY._replace(host="any text")),
        Acl(ORDERS, ENTRY._replace(operation=Operation.IDEMPOTENT_WRITE)),
        Acl(ORDERS, ENTRY._replace(principal="Group:admins")),
    ],
)
def test_a_rule_that_apache_kafka_takes_can_be_created(acl: Acl) -> None:
    check_acl(acl)


@pytest.mark.parametrize(
    "acl",
    [
        Acl(ORDERS._replace(resource_type=ResourceType.ANY), ENTRY),
        Acl(ORDERS._replace(pattern_type=PatternType.MATCH), ENTRY),
        Acl(ORDERS._replace(pattern_type=PatternType.ANY), ENTRY),
        Acl(ORDERS._replace(name=""), ENTRY),
        Acl(ORDERS._replace(name="x" * 1001), ENTRY),
        Acl(ORDERS._replace(resource_type=ResourceType.CLUSTER), ENTRY),
        Acl(ORDERS, ENTRY._replace(principal="alice")),
        Acl(ORDERS, ENTRY._replace(principal="User:" + "x" * 1000)),
        Acl(ORDERS, ENTRY._replace(host="")),
        Acl(ORDERS, ENTRY._replace(operation=Operation.ANY)),
        Acl(ORDERS, ENTRY._replace(permission=Permission.ANY)),
    ],
)
def test_a_rule_that_is_a_filter_or_names_nothing_is_an_invalid_request(acl: Acl) -> None:
    with pytest.raises(RequestError) as refused:
        check_acl(acl)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_rule_reads_as_a_sentence() -> None:
    assert str(Acl(ORDERS, ENTRY)) == "Allow Read on Topic orders to User:alice from *"
    prefixed = ORDERS._replace(pattern_type=PatternType.PREFIXED)
    assert str(Acl(prefixed, ENTRY)) == "Allow Read on Topic orders* to User:alice from *"


@pytest.mark.parametrize("label", ["DescribeConfigs", "describe_configs", "DESCRIBECONFIGS", "describe-configs"])
def test_an_operation_is_found_by_each_form_of_its_name(label: str) -> None:
    assert from_label(Operation, label) is Operation.DESCRIBE_CONFIGS


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'Wrte' is not one of .*Read, Write"):
        from_label(Operation, "Wrte")
