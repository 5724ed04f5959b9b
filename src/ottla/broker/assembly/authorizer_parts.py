"""The authorizer, where the settings turn it on: its rules are read before the first client connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.net.access import AccessOf, access_by
from ottla.broker.net.security_log import SecurityLog
from ottla.model.security_settings import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
    parse_super_users,
)
from ottla.security.authorizer import Authorizer

if TYPE_CHECKING:
    from ottla.broker.authorization.acl_changes import AclChanges
    from ottla.broker.authorization.api_guards import GuardedCalls


class AuthorizerParts(NamedTuple):
    """`access_of` gives the access of each connection, which `calls` serves by the rules that `acls` follows."""

    acls: AclChanges
    calls: GuardedCalls
    access_of: AccessOf


async def start_authorizer(start: BrokerStart, tree: TreeParts, security_log: SecurityLog) -> AuthorizerParts | None:
    """None: every client may do everything."""
    settings = start.settings
    if not settings[AUTHORIZER_CLASS_NAME]:
        return None
    # It imports the messages of all APIs.
    from ottla.broker.authorization.acl_changes import AclChanges
    from ottla.broker.authorization.api_guards import GuardedCalls

    authorizer = Authorizer(
        parse_super_users(settings[SUPER_USERS]), allows_uncovered=settings[ALLOW_EVERYONE_IF_NO_ACL_FOUND]
    )
    acls = AclChanges(tree.coordination.acls, authorizer)
    await start.retries.until_done(acls.follow)
    return AuthorizerParts(acls, GuardedCalls(), access_by(authorizer, security_log))
