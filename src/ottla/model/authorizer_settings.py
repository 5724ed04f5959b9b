"""The settings of the authorizer, by Kafka's names, and of the log of what it refuses."""

from __future__ import annotations

from typing import Final

from ottla.model.errors import ConfigError
from ottla.model.setting import AnySetting, flag, optional_text, word

_CLASSES: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)

AUTHORIZER_CLASS_NAME: Final = word(
    "authorizer.class.name",
    "",
    "Any of Kafka's own authorizers turns Ottla's on, which decides alike: from then on a client may do only what an "
    "ACL allows.  Empty: every client may do everything.  The same for all brokers of a cluster.",
    choices=("", *_CLASSES),
)
SUPER_USERS: Final = word(
    "super.users",
    "",
    "The principals that may do everything, `User:NAME` each, with semicolons between.  Those of the brokers must be "
    "among them, or have the right CLUSTER_ACTION.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = flag(
    "allow.everyone.if.no.acl.found", False, "Every client may do everything with a resource that no ACL covers."
)
SECURITY_LOG_FILE: Final = optional_text(
    "security.log.file",
    "A file for a JSON line about each refusal and each change by an administrator, readable by its owner only.  The "
    "broker's log has them as well.  A file that is moved away is created again.",
)
AUTHORIZER_SETTINGS: Final[tuple[AnySetting, ...]] = (
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    SECURITY_LOG_FILE,
)


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`.  Raises `ConfigError` for one that is not TYPE:NAME."""
    principals = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in sorted(principals):
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ConfigError(
                f"super.users: {principal!r} is not a principal",
                hint="write TYPE:NAME with semicolons between, such as User:admin;User:broker",
            )
    return principals
