"""The access rules over every home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.coordination import layout
from ottla.coordination.acls import AclRegistry
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.tree import Tree
from ottla.security.acl import AccessEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from tests.contract.tree_backends import TreeBackend, until

ORDERS = ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "orders")
READ = AccessEntry("User:ada", "*", Operation.READ, Permission.ALLOW)
WRITE = AccessEntry("User:ada", "10.0.0.1", Operation.WRITE, Permission.DENY)
NAMES = ("orders", "*", "a/../b", "..", ".", "/", "%2F", "ü \x00\n", "x" * 1000)


@asynccontextmanager
async def laid_out(home: TreeBackend) -> AsyncIterator[Tree]:
    async with home.running() as running:
        tree = await running.connect()
        await layout.lay_out(tree)
        yield tree


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pattern_type", [PatternType.LITERAL, PatternType.PREFIXED])
async def test_a_rule_of_any_name_is_read_as_it_was_written(
    home: TreeBackend, name: str, pattern_type: PatternType
) -> None:
    pattern = ResourcePattern(ResourceType.GROUP, pattern_type, name)
    async with laid_out(home) as tree:
        await AclRegistry(tree).update(pattern, lambda _: (READ, WRITE))
        view = await AclRegistry(tree).refresh()
        assert dict(view.patterns) == {pattern: (READ, WRITE)}


async def test_the_view_follows_each_change_and_keeps_the_others(home: TreeBackend) -> None:
    groups = ResourcePattern(ResourceType.GROUP, PatternType.PREFIXED, "ord")
    async with laid_out(home) as tree:
        reader, writer = AclRegistry(tree), AclRegistry(tree)
        assert (await reader.refresh()).acls_count == 0
        await writer.update(ORDERS, lambda _: (READ,))
        await writer.update(groups, lambda _: (READ,))
        first = await reader.refresh()
        assert dict(first.patterns) == {ORDERS: (READ,), groups: (READ,)}
        assert await reader.refresh() is first
        assert await writer.update(ORDERS, lambda before: (*before, WRITE)) == ((READ,), (READ, WRITE))
        second = await reader.refresh()
        assert second.version > first.version
        assert dict(second.patterns) == {ORDERS: (READ, WRITE), groups: (READ,)}


async def test_a_pattern_whose_last_rule_is_removed_has_no_node(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = AclRegistry(tree)
        await registry.update(ORDERS, lambda _: (READ,))
        await registry.refresh()
        await registry.update(ORDERS, lambda _: ())
        assert (await registry.refresh()).acls_count == 0
        assert await tree.children("/acls/literal/topic") == []


async def test_writers_at_once_lose_no_rule_of_each_other(home: TreeBackend) -> None:
    entries = [READ._replace(principal=f"User:{number}") for number in range(12)]
    async with home.running() as running:
        trees = [await running.connect() for _ in range(2)]
        await layout.lay_out(trees[0])
        registries = [AclRegistry(tree) for tree in trees]
        await asyncio.gather(
            *(
                registries[number % 2].update(ORDERS, lambda before, added=entry: (*before, added))  # type: ignore[misc]
                for number, entry in enumerate(entries)
            )
        )
        view = await AclRegistry(trees[0]).refresh()
        assert set(view.patterns[ORDERS]) == set(entries)


async def test_another_sessions_change_is_reported(home: TreeBackend) -> None:
    reported: list[None] = []
    async with home.running() as running:
        own, other = await running.connect(), await running.connect()
        await layout.lay_out(own)
        registry = AclRegistry(own, on_stale=lambda: reported.append(None))
        await registry.refresh()
        await AclRegistry(other).update(ORDERS, lambda _: (READ,))
        await until(lambda: bool(reported))
        assert dict((await registry.refresh()).patterns) == {ORDERS: (READ,)}


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Maybe","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":["User:a"]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny","operation":"Read"}]}',
    ],
)
async def test_a_rule_that_is_not_understood_is_an_error_since_it_may_deny(home: TreeBackend, content: bytes) -> None:
    async with laid_out(home) as tree:
        registry = AclRegistry(tree)
        await registry.update(ORDERS, lambda _: (READ,))
        await registry.refresh()
        await tree.set("/acls/literal/topic/orders", content, -1)
        with pytest.raises(NodeDamaged, match="/acls/literal/topic/orders"):
            await AclRegistry(tree).refresh()
        assert dict(registry.view.patterns) == {ORDERS: (READ,)}


async def test_the_content_is_apache_kafkas(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        await AclRegistry(tree).update(ORDERS, lambda _: (READ,))
        node = await tree.get("/acls/literal/topic/orders")
        assert node.data == (
            b'{"version":1,"acls":[{"principal":"User:ada","permissionType":"Allow","operation":"Read","host":"*"}]}'
        )
