"""Whether a tree is closed to the other clients of its ZooKeeper, and what closes one that was open.

With an authorizer the users and the access rules are in the tree: who may change it needs no right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol, TypeVar

from ottla.coordination import layout
from ottla.coordination.tree import NoNode, Stat
from ottla.coordination.zookeeper.node_access import AccessList, is_unprotected
from ottla.model.counted import listed
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.zookeeper_settings import ZOOKEEPER_UNPROTECTED

Found = TypeVar("Found")

_AT_ONCE: Final = 500
_PATHS_SHOWN: Final = 3
# ZooKeeper keeps its own settings there.
_SERVERS_OWN: Final = "/zookeeper"
_ACL_LEVELS: Final = 3  # /acls/<pattern type>/<resource type>/<name>


class TreeUnprotected(OttlaError):
    """Any client of ZooKeeper may change the tree, and the broker has an authorizer."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = (
        "give all brokers zookeeper.digest, then close what exists with `ottla cluster protect`; "
        f"{ZOOKEEPER_UNPROTECTED.name}=true accepts it"
    )


class AccessTree(Protocol):
    """The part of a session that is needed here."""

    async def children(self, path: str) -> list[str]: ...

    async def access_of(self, path: str) -> AccessList: ...

    async def protect(self, path: str) -> Stat: ...


async def require_protection(tree: AccessTree) -> None:
    """Raises `TreeUnprotected`.  Nodes that do not exist yet get the rights of the session that creates them."""
    found = await unprotected_paths(tree)
    if found:
        raise TreeUnprotected(
            f"any client of ZooKeeper may change the users, the ACLs and the tree: {listed(found, _PATHS_SHOWN)} "
            f"{'is' if len(found) == 1 else 'are'} open"
        )


async def unprotected_paths(tree: AccessTree) -> list[str]:
    """Of the standing nodes, the topics, and all nodes of users and access rules."""
    paths = ["/", layout.CLUSTER_ID, layout.LOGIN_SECRET, *layout.STANDING]
    paths += await _below(tree, layout.TOPICS, levels=1)
    paths += await _below(tree, layout.USER_CONFIGS, levels=1)
    paths += await _below(tree, layout.ACLS, levels=_ACL_LEVELS)
    access = zip(paths, await _each(paths, tree.access_of), strict=True)
    return [path for path, found in access if found is not None and is_unprotected(path, found)]


async def protect_tree(tree: AccessTree) -> int:
    """Give every node the rights with which this session would create it; returns their count.

    May be interrupted, and is then repeated.
    """
    count = 0
    level = ["/"]
    while level:
        count += sum(stat is not None for stat in await _each(level, tree.protect))
        level = await _children(tree, level)
    return count


async def _below(tree: AccessTree, path: str, levels: int) -> list[str]:
    found: list[str] = []
    level = [path]
    for _ in range(levels):
        level = await _children(tree, level)
        found += level
    return found


async def _children(tree: AccessTree, parents: Sequence[str]) -> list[str]:
    names = await _each(parents, tree.children)
    prefixes = ["" if path == "/" else path for path in parents]
    paths = [f"{prefix}/{name}" for prefix, each in zip(prefixes, names, strict=True) for name in each or ()]
    return [path for path in paths if path != _SERVERS_OWN]


async def _each(paths: Iterable[str], call: Callable[[str], Awaitable[Found]]) -> list[Found | None]:
    """The results in order; None for a node that does not exist (any more)."""

    async def one(path: str) -> Found | None:
        try:
            return await call(path)
        except NoNode:
            return None

    rest = iter(paths)
    results: list[Found | None] = []
    while part := list(islice(rest, _AT_ONCE)):
        results += await asyncio.gather(*(one(path) for path in part))
    return results
