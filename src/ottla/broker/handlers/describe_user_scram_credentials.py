"""DescribeUserScramCredentials (key 50), v0-v0.

The mechanisms and iterations of users, never their keys; of all users where the list is null or empty.  A user without
credentials: RESOURCE_NOT_FOUND; named twice: DUPLICATE_RESOURCE.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.coordination.configs import ConfigEntity
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram_server import CredentialDamaged, ScramCredential

# The numbers of KIP-554.
SCRAM_NUMBERS: Final = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}


async def handle(
    request: DescribeUserScramCredentialsRequest, context: BrokerContext, call: Call
) -> DescribeUserScramCredentialsResponse:
    turn = LoopOffload()
    results: list[DescribeUserScramCredentialsResult] = []
    if not request.users:
        for name in sorted(context.configs.users()):
            found = _credentials(name, context)
            if found:
                results.append(DescribeUserScramCredentialsResult(name, credential_infos=found))
            await turn.pause()
    else:
        counts = Counter(user.name for user in request.users)
        for name, count in counts.items():
            results.append(_described(name, count, context))
            await turn.pause()
    return DescribeUserScramCredentialsResponse(results=results)


def _described(name: str, count: int, context: BrokerContext) -> DescribeUserScramCredentialsResult:
    if count > 1:
        problem = f"the user {name!r} is described twice"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, problem)
    found = _credentials(name, context)
    if not found:
        problem = f"the user {name!r} has no SCRAM credentials"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, problem)
    return DescribeUserScramCredentialsResult(name, credential_infos=found)


def _credentials(name: str, context: BrokerContext) -> list[CredentialInfo]:
    settings = context.configs.of(ConfigEntity.user(name))
    found: list[CredentialInfo] = []
    for mechanism, number in SCRAM_NUMBERS.items():
        try:
            if mechanism in settings:
                found.append(CredentialInfo(number, ScramCredential.parse(settings[mechanism]).iterations))
        except CredentialDamaged:
            continue
    return found
