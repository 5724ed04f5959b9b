"""Users that log in by SCRAM: their credentials, set, deleted and listed (KIP-554)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, error_code_of
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
from ottla.security.scram_server import SALT_BYTES
from ottla.security.secret import Secret

# Of new credentials, as Kafka's tools do.
DEFAULT_ITERATIONS: Final = 8_192
_NUMBERS: Final = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}
_MECHANISMS: Final = {number: mechanism for mechanism, number in _NUMBERS.items()}


class UserCredential(NamedTuple):
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
