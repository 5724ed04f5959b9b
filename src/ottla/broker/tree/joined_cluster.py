"""The tree of a cluster as a new broker finds it before its first start: its id is checked, its user is written."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from uuid import UUID

from ottla.broker.tree.zookeeper_sessions import zookeeper_backend
from ottla.coordination.acls import AclRegistry, Entries
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.model.errors import OttlaError
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import SystemClock
from ottla.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AccessEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.join_token import JoinToken, TokenRefused
from ottla.security.mechanism import SaslMechanism
from ottla.security.member_settings import PASSWORD_FILE, mechanism_of
from ottla.security.scram_server import SALT_BYTES, ScramCredential
from ottla.security.secret import Secret

_ITERATIONS = 8_192
# What a broker does at the others: it fetches as a replica, and an election looks for logs that take appends.
_OPERATIONS = (Operation.CLUSTER_ACTION, Operation.DESCRIBE)


async def read_cluster_id(settings: BrokerSettings) -> str:
    """Raises `OttlaError` where there is no cluster, or no ZooKeeper that lets this user in."""
    session = await zookeeper_backend(settings, SystemClock()).connect()
    try:
        return await cluster_id(session, new_id=_no_cluster)
    finally:
        await session.close()


async def join_cluster(settings: BrokerSettings, token: JoinToken) -> None:
    """Give the token's broker its user and its rights.  `settings`: its own, with the files written.

    The user is written last, and shows that the token was used.  Raises `TokenRefused` for another cluster, and for a
    token that was used before; then nothing is changed.
    """
    session = await zookeeper_backend(settings, SystemClock()).connect()
    try:
        found = await cluster_id(session, new_id=_no_cluster)
        if found != token.head.cluster_id:
            raise TokenRefused(
                f"the token is for cluster {token.head.cluster_id}, and the ZooKeeper tree is that of cluster {found}",
                hint="the cluster was made again, or its zookeeper.connect names another one: make another token there",
            )
        configs = ConfigRegistry(session)
        if token.user is not None:
            user, password = ConfigEntity.user(token.user), Secret(token.files[PASSWORD_FILE].strip())
            mechanism = mechanism_of(token.settings)
            # Before the rights are written: a used token changes nothing.
            _with_password(mechanism, password, await configs.get(user))
        if token.principal is not None:
            pattern = ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
            await AclRegistry(session).update(pattern, partial(_with_rights, token.principal))
        if token.user is not None:
            await configs.update(user, partial(_with_password, mechanism, password))
    finally:
        await session.close()


def _with_password(mechanism: SaslMechanism, password: Secret, found: Mapping[str, str]) -> Mapping[str, str]:
    text = found.get(mechanism)
    if text is not None and ScramCredential.parse(text).is_of(mechanism, password):
        raise TokenRefused("the token was used before", hint="make another with `ottla secure token`")
    credential = ScramCredential.of_password(mechanism, password, secrets.token_bytes(SALT_BYTES), _ITERATIONS)
    return {**found, mechanism: credential.to_text()}


def _with_rights(principal: str, found: Entries) -> Entries:
    wanted = [AccessEntry(principal, WILDCARD, operation, Permission.ALLOW) for operation in _OPERATIONS]
    return (*found, *(entry for entry in wanted if entry not in found))


def _no_cluster() -> UUID:
    raise OttlaError(
        "the ZooKeeper tree has no cluster yet", hint="start its first broker, and check zookeeper.connect"
    )
