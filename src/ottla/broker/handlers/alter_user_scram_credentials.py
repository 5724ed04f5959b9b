"""AlterUserScramCredentials (key 51), v0-v0.

Sets and deletes the credentials of users; each user is changed at once, or not at all.  The client sends the salted
password, from which the broker keeps two keys.  Codes: UNSUPPORTED_SASL_MECHANISM; UNACCEPTABLE_CREDENTIAL for an empty
name, or iterations outside of 4,096 to 16,384; RESOURCE_NOT_FOUND for a deletion of what is not there;
DUPLICATE_RESOURCE for one credential named twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.describe_user_scram_credentials import SCRAM_NUMBERS
from ottla.coordination.configs import ConfigEntity
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import ITERATIONS_MIN, scram_hash
from ottla.security.scram_server import NEW_ITERATIONS_MAX, ScramCredential

_MECHANISMS: Final = {number: mechanism for mechanism, number in SCRAM_NUMBERS.items()}
_SALT_BYTES_MAX: Final = 1_024
_NAME_LENGTH_MAX: Final = 255


class _Changes(NamedTuple):
    """Of one user."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


async def handle(
    request: AlterUserScramCredentialsRequest, context: BrokerContext, call: Call
) -> AlterUserScramCredentialsResponse:
    turn = LoopOffload()
    users: dict[str, _Changes] = {}
    for deletion in request.deletions:
        users.setdefault(deletion.name, _Changes([], [])).deletions.append(deletion)
        await turn.pause()
    for upsertion in request.upsertions:
        users.setdefault(upsertion.name, _Changes([], [])).upsertions.append(upsertion)
        await turn.pause()
    results: list[AlterUserScramCredentialsResult] = []
    for name, changes in users.items():
        results.append(await _alter(name, changes, context))
        await turn.pause()
    return AlterUserScramCredentialsResponse(results=results)


async def _alter(name: str, changes: _Changes, context: BrokerContext) -> AlterUserScramCredentialsResult:
    try:
        changed = _changed(name, changes, context)
        await context.topic_admin.alter_config(ConfigEntity.user(name), changed)
    except OttlaError as error:
        return AlterUserScramCredentialsResult(name, error.error_code, str(error))
    return AlterUserScramCredentialsResult(name)


def _changed(name: str, changes: _Changes, context: BrokerContext) -> Mapping[str, str | None]:
    if not name or len(name) > _NAME_LENGTH_MAX or "\0" in name:
        raise RequestError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a name of a user has 1 to {_NAME_LENGTH_MAX} characters, without NUL"
        )
    if len(changes.deletions) + len(changes.upsertions) > len(_MECHANISMS):
        raise RequestError(ErrorCode.DUPLICATE_RESOURCE, f"a credential of the user {name!r} is changed twice")
    deletions = [_mechanism(each.mechanism) for each in changes.deletions]
    upsertions = [(_mechanism(each.mechanism), each) for each in changes.upsertions]
    mechanisms = [*deletions, *(mechanism for mechanism, _ in upsertions)]
    if len(set(mechanisms)) != len(mechanisms):
        raise RequestError(ErrorCode.DUPLICATE_RESOURCE, f"a credential of the user {name!r} is changed twice")
    before = context.configs.of(ConfigEntity.user(name))
    if any(mechanism not in before for mechanism in deletions):
        raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, f"the user {name!r} has no such credential")
    return {
        **dict.fromkeys(deletions),
        **{mechanism: _credential(mechanism, upsertion).to_text() for mechanism, upsertion in upsertions},
    }


def _mechanism(number: int) -> SaslMechanism:
    mechanism = _MECHANISMS.get(number)
    if mechanism is None:
        raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {number}")
    return mechanism


def _credential(mechanism: SaslMechanism, upsertion: ScramCredentialUpsertion) -> ScramCredential:
    iterations, salted = upsertion.iterations, bytes(upsertion.salted_password)
    if not ITERATIONS_MIN <= iterations <= NEW_ITERATIONS_MAX:
        raise RequestError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"iterations must be {ITERATIONS_MIN} to {NEW_ITERATIONS_MAX}"
        )
    if not 0 < len(upsertion.salt) <= _SALT_BYTES_MAX:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a salt has 1 to {_SALT_BYTES_MAX} bytes")
    if len(salted) != len(scram_hash(mechanism).digest(b"")):
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password has the wrong length")
    return ScramCredential.of_salted(mechanism, salted, bytes(upsertion.salt), iterations)
