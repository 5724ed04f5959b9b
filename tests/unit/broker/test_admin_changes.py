"""What the security log says of changes."""

from __future__ import annotations

import pytest

from ottla.broker.admin_changes import CHANGING
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((2, 3, 4, 3), "ACL:Allow Write on Topic orders to User:alice from *"),
        ((0, 0, 0, 0), "ACL"),
        ((2, 3, 99, 3), "ACL"),
        ((127, 3, 4, 3), "ACL"),
    ],
)
def test_refused_rule_with_numbers_of_no_meaning_is_reported_without_them(
    numbers: tuple[int, int, int, int], text: str
) -> None:
    resource, pattern, operation, permission = numbers
    creation = AclCreation(resource, "orders", pattern, "User:alice", "*", operation, permission)
    response = CreateAclsResponse(results=[AclCreationResult(ErrorCode.SECURITY_DISABLED)])
    outcomes = CHANGING[ApiKey.CREATE_ACLS](CreateAclsRequest([creation]), response)
    assert list(outcomes) == [(text, ErrorCode.SECURITY_DISABLED)]
