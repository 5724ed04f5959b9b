"""AlterUserScramCredentials and DescribeUserScramCredentials."""

from __future__ import annotations

import pytest

from ottla.coordination.configs import ConfigEntity
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import scram_hash
from ottla.security.scram_server import ScramCredential
from ottla.security.secret import Secret
from tests.unit.broker.handlers.small_broker import SmallBroker

SHA_256, SHA_512 = SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512
CREDENTIAL = ScramCredential.of_password(SHA_256, Secret("secret"), b"salt", 4_096).to_text()


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4_096, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    salted = scram_hash(SHA_256 if mechanism == 1 else SHA_512).salted_password(Secret("secret"), b"salt", iterations)
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, salted)


async def alter(
    broker: SmallBroker,
    upsertions: list[ScramCredentialUpsertion] = [],  # noqa: B006 (not changed)
    deletions: list[ScramCredentialDeletion] = [],  # noqa: B006 (not changed)
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    answer = await broker.ask(api, 0, request, AlterUserScramCredentialsResponse)
    return {each.user: each.error_code for each in answer.results}


async def describe(broker: SmallBroker, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest([UserName(name) for name in names] if names else None)
    api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    answer = await broker.ask(api, 0, request, DescribeUserScramCredentialsResponse)
    return [
        (each.user, each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in answer.results
    ]


def broker_with_alice() -> SmallBroker:
    broker = SmallBroker()
    broker.overrides = {ConfigEntity.user("alice"): {SHA_256: CREDENTIAL}, ConfigEntity.user("quota"): {"x": "1"}}
    return broker


async def test_credential_is_stored_as_keys_and_not_as_the_salted_password() -> None:
    broker = SmallBroker()
    assert await alter(broker, [upsertion()]) == {"alice": ErrorCode.NONE}
    assert broker.altered == [(ConfigEntity.user("alice"), {"SCRAM-SHA-256": CREDENTIAL})]


async def test_both_credentials_of_a_user_are_changed_at_once() -> None:
    broker = broker_with_alice()
    answer = await alter(broker, [upsertion(mechanism=2)], [ScramCredentialDeletion("alice", 1)])
    assert answer == {"alice": ErrorCode.NONE}
    [(_, changed)] = broker.altered
    assert changed["SCRAM-SHA-256"] is None
    assert ScramCredential.parse(changed["SCRAM-SHA-512"] or "").is_of(SHA_512, Secret("secret"))


@pytest.mark.parametrize(
    ("upsertions", "deletions", "code"),
    [
        ([upsertion("")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("a\0b")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x" * 256)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=4_095)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(iterations=16_385)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion(salt=b"")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([ScramCredentialUpsertion("alice", 1, 4_096, b"salt", b"short")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([ScramCredentialUpsertion("alice", 3, 4_096, b"salt", bytes(32))], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [ScramCredentialDeletion("alice", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [ScramCredentialDeletion("alice", 2)], ErrorCode.RESOURCE_NOT_FOUND),
        ([], [ScramCredentialDeletion("ghost", 1)], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsertion(), upsertion()], [], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion()], [ScramCredentialDeletion("alice", 1)], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
async def test_changes_that_cannot_be_made_are_refused_whole(
    upsertions: list[ScramCredentialUpsertion], deletions: list[ScramCredentialDeletion], code: ErrorCode
) -> None:
    broker = broker_with_alice()
    answer = await alter(broker, [upsertion("bob"), *upsertions], deletions)
    assert answer.pop("bob") == ErrorCode.NONE
    assert set(answer.values()) == {code}
    assert [entity for entity, _ in broker.altered] == [ConfigEntity.user("bob")]


async def test_users_are_described_without_their_keys() -> None:
    broker = broker_with_alice()
    assert await describe(broker) == [("alice", 0, [(1, 4_096)])]
    assert await describe(broker, "alice", "ghost", "quota") == [
        ("alice", ErrorCode.NONE, [(1, 4_096)]),
        ("ghost", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("quota", ErrorCode.RESOURCE_NOT_FOUND, []),
    ]
    assert await describe(broker, "alice", "alice") == [("alice", ErrorCode.DUPLICATE_RESOURCE, [])]


async def test_an_empty_list_describes_all_users_as_librdkafka_requests_them() -> None:
    request = DescribeUserScramCredentialsRequest([])
    api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    response = await broker_with_alice().ask(api, 0, request, DescribeUserScramCredentialsResponse)
    assert [each.user for each in response.results] == ["alice"]
