"""DescribeAcls, CreateAcls and DeleteAcls: what Apache Kafka answers without an authorizer."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.schemas.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.schemas.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tests.unit.broker.handlers.small_broker import SmallBroker

TOPIC, LITERAL, ALLOW, READ = 2, 3, 3, 3
DISABLED = ErrorCode.SECURITY_DISABLED
VERSIONS = range(1, 4)


def test_versions_are_those_of_apache_kafka_4() -> None:
    acls = (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
    assert [API_VERSIONS[api] for api in acls] == [(1, 3)] * 3


@pytest.mark.parametrize("version", VERSIONS)
async def test_there_are_no_rules_to_describe(version: int) -> None:
    request = DescribeAclsRequest(TOPIC, "orders", LITERAL, None, None, READ, ALLOW)
    answer = await SmallBroker().ask(ApiKey.DESCRIBE_ACLS, version, request, DescribeAclsResponse)
    assert answer == DescribeAclsResponse(0, DISABLED, "No Authorizer is configured on the broker", [])


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_rule_is_refused(version: int) -> None:
    rules = [AclCreation(TOPIC, name, LITERAL, "User:ada", "*", READ, ALLOW) for name in ("orders", "clicks")]
    answer = await SmallBroker().ask(ApiKey.CREATE_ACLS, version, CreateAclsRequest(rules), CreateAclsResponse)
    assert answer == CreateAclsResponse(0, [AclCreationResult(DISABLED, "No Authorizer is configured.")] * 2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_filter_is_refused(version: int) -> None:
    request = DeleteAclsRequest([DeleteAclsFilter(TOPIC, None, LITERAL, "User:ada", None, READ, ALLOW)] * 2)
    answer = await SmallBroker().ask(ApiKey.DELETE_ACLS, version, request, DeleteAclsResponse)
    assert answer == DeleteAclsResponse(0, [DeleteAclsFilterResult(DISABLED, "No Authorizer is configured.", [])] * 2)
