"""Which users may do what with the nodes of a tree.

Brokers may do everything.  Consumers without a master may have a separate user: it reads the brokers' addresses and the
topics, and changes only what is below `/consumers`.  No other client of ZooKeeper can read anything.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from typing import Final, NamedTuple

from ottla.coordination import layout
from ottla.coordination.tree import parent_of
from ottla.coordination.zookeeper.access import DigestCredentials

WORLD: Final = "world"


class Rights(IntFlag):
    """Of one user at one node (org.apache.zookeeper.ZooDefs.Perms); children are created and deleted by their parent's.

    A node's rights do not extend to the nodes below it.
    """

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class AccessEntry(NamedTuple):
    """The rights of one identity of a scheme."""

    rights: Rights
    scheme: str
    identity: str


AccessList = tuple[AccessEntry, ...]
# The access list of a node by its path in the tree.
NodeAccess = Callable[[str], AccessList]

OPEN: Final[AccessList] = (AccessEntry(Rights.ALL, WORLD, "anyone"),)
# The server replaces it by the users of the session that creates the node.
CREATOR_ONLY: Final[AccessList] = (AccessEntry(Rights.ALL, "auth", ""),)

_READ_BY_CONSUMERS: Final = frozenset({"/", layout.CLUSTER_ID, layout.BROKER_IDS, layout.TOPICS})
_CHILDREN_READ_BY_CONSUMERS: Final = frozenset({layout.BROKER_IDS, layout.TOPICS})
_CHANGES_ITEMS: Final = Rights.WRITE | Rights.CREATE | Rights.DELETE | Rights.ADMIN


def open_access(path: str) -> AccessList:
    return OPEN


def creator_access(path: str) -> AccessList:
    return CREATOR_ONLY


def shared_access(brokers: DigestCredentials, consumers: DigestCredentials) -> NodeAccess:
    """Of sessions that have both users: each node names those that may use it."""
    all_rights = AccessEntry(Rights.ALL, "digest", brokers.identity)

    def access(path: str) -> AccessList:
        rights = rights_of_consumers(path)
        return (all_rights, AccessEntry(rights, "digest", consumers.identity)) if rights else (all_rights,)

    return access


def rights_of_consumers(path: str) -> Rights:
    """What the users of consumers may do with a node; they set no ACL outside their groups."""
    if path == layout.CONSUMERS:
        return Rights.READ | Rights.CREATE | Rights.DELETE
    if path.startswith(f"{layout.CONSUMERS}/"):
        return Rights.ALL
    if path in _READ_BY_CONSUMERS or (path != "/" and parent_of(path) in _CHILDREN_READ_BY_CONSUMERS):
        return Rights.READ
    return Rights(0)


def is_unprotected(path: str, access: AccessList) -> bool:
    """Whether any client that reaches ZooKeeper may change the node, or read a secret of it."""
    refused = _CHANGES_ITEMS | Rights.READ if holds_secrets(path) else _CHANGES_ITEMS
    return any(entry.scheme == WORLD and entry.rights & refused for entry in access)


def holds_secrets(path: str) -> bool:
    """The users' keys, with which passwords can be guessed and brokers impersonated."""
    return path == layout.LOGIN_SECRET or path == layout.USER_CONFIGS or path.startswith(f"{layout.USER_CONFIGS}/")
