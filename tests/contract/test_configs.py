"""The config registry over every home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from ottla.coordination import layout
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import ANY_VERSION, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId
from tests.contract.tree_backends import TreeBackend, until

ORDERS = ConfigEntity.topic("orders")
BROKER = ConfigEntity.broker(NodeId(1))


@asynccontextmanager
async def with_topic(home: TreeBackend, config: Mapping[str, str] | None = None) -> AsyncIterator[Tree]:
    async with home.running() as running:
        tree = await running.connect()
        await layout.lay_out(tree)
        await TopicRegistry(tree).create("orders", [[NodeId(1)]], {NodeId(1): 1}, config)
        yield tree


async def test_settings_given_at_creation_are_the_topics_settings(home: TreeBackend) -> None:
    async with with_topic(home, {"retention.ms": "60000"}) as tree:
        registry = ConfigRegistry(tree)
        assert await registry.get(ORDERS) == {"retention.ms": "60000"}
        view = await registry.refresh()
        assert view.topic("orders") == {"retention.ms": "60000"}
        assert view.topic("unknown") == {}


async def test_update_replaces_the_changed_settings_and_is_seen(home: TreeBackend) -> None:
    async with with_topic(home, {"a": "1", "b": "2"}) as tree:
        registry = ConfigRegistry(tree)
        await registry.refresh()
        after = await registry.update(ORDERS, lambda before: {"a": before["a"] + "0", "c": "3"})
        assert after == {"a": "10", "c": "3"}
        assert (await registry.refresh()).topic("orders") == after


async def test_broker_settings_need_no_existing_node_and_the_default_is_separate(home: TreeBackend) -> None:
    async with with_topic(home) as tree:
        registry = ConfigRegistry(tree)
        assert await registry.get(BROKER) == {}
        await registry.update(BROKER, lambda _: {"x": "1"})
        await registry.update(ConfigEntity.broker(None), lambda _: {"x": "2"})
        view = await registry.refresh()
        assert view.of(BROKER) == {"x": "1"}
        assert view.of(ConfigEntity.broker(None)) == {"x": "2"}
        assert view.of(ConfigEntity.broker(NodeId(2))) == {}


async def test_settings_of_an_unknown_topic_cannot_be_read_or_set(home: TreeBackend) -> None:
    async with with_topic(home) as tree:
        registry = ConfigRegistry(tree)
        unknown = ConfigEntity.topic("unknown")
        for operation in (registry.get(unknown), registry.update(unknown, lambda _: {"a": "1"})):
            with pytest.raises(RequestError) as refusal:
                await operation
            assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_concurrent_updates_are_all_kept(home: TreeBackend) -> None:
    async with with_topic(home) as tree:

        async def add(entity: ConfigEntity, number: int) -> None:
            await ConfigRegistry(tree).update(entity, lambda before: {**before, f"k{number}": "v"})

        await asyncio.gather(*(add(entity, number) for number in range(10) for entity in (ORDERS, BROKER)))
        expected = {f"k{number}": "v" for number in range(10)}
        assert await ConfigRegistry(tree).get(ORDERS) == expected
        assert await ConfigRegistry(tree).get(BROKER) == expected


async def test_update_that_changes_nothing_writes_nothing(home: TreeBackend) -> None:
    async with with_topic(home, {"a": "1"}) as tree:
        before = (await tree.get(ORDERS.path)).stat
        await ConfigRegistry(tree).update(ORDERS, lambda settings: settings)
        assert (await tree.get(ORDERS.path)).stat == before


async def test_refusal_of_the_change_is_raised_and_changes_nothing(home: TreeBackend) -> None:
    def refuse(_: Mapping[str, str]) -> Mapping[str, str]:
        raise RequestError(ErrorCode.INVALID_CONFIG, "no")

    async with with_topic(home, {"a": "1"}) as tree:
        registry = ConfigRegistry(tree)
        with pytest.raises(RequestError, match="no"):
            await registry.update(ORDERS, refuse)
        assert await registry.get(ORDERS) == {"a": "1"}


async def test_settings_are_deleted_with_their_topic(home: TreeBackend) -> None:
    async with with_topic(home, {"a": "1"}) as tree:
        registry = ConfigRegistry(tree)
        await registry.refresh()
        await TopicRegistry(tree).delete("orders")
        assert (await registry.refresh()).settings == {}


async def test_view_is_the_same_while_only_topics_change_and_reader_is_notified_of_changes(home: TreeBackend) -> None:
    async with with_topic(home) as tree:
        told: list[None] = []
        registry = ConfigRegistry(tree, on_stale=lambda: told.append(None))
        view = await registry.refresh()
        assert await registry.refresh() is view
        await registry.update(ORDERS, lambda _: {"a": "1"})
        await until(lambda: len(told) == 1)
        assert (await registry.refresh()).version > view.version


async def test_settings_that_are_not_text_are_damage(home: TreeBackend) -> None:
    async with with_topic(home) as tree:
        await tree.set(ORDERS.path, b'{"version":1,"config":{"a":1}}', ANY_VERSION)
        with pytest.raises(NodeDamaged, match="/config/topics/orders"):
            await ConfigRegistry(tree).refresh()


@pytest.mark.parametrize("group_id", ["g", "a/b c", "..", ".", "%2E", "\u00fc\n\x00", "x" * 1_024])
async def test_a_group_of_any_name_has_settings_until_the_last_is_unset(home: TreeBackend, group_id: str) -> None:
    async with with_topic(home) as tree:
        registry, entity = ConfigRegistry(tree), ConfigEntity.group(group_id)
        assert await registry.get(entity) == {}
        await registry.update(entity, lambda _: {"x": "1"})
        assert (await registry.refresh()).of(entity) == {"x": "1"}
        # As after a restart: read from the tree, not from the changes.
        assert (await ConfigRegistry(tree).refresh()).settings[entity] == {"x": "1"}
        await registry.update(entity, lambda _: {})
        assert entity not in (await registry.refresh()).settings
        assert await tree.children("/config/groups") == []


async def test_quotas_of_a_client_of_a_user_are_beside_those_of_the_user(home: TreeBackend) -> None:
    async with with_topic(home) as tree:
        registry, other = ConfigRegistry(tree), ConfigRegistry(tree)
        await other.refresh()
        user, default_user = ConfigEntity.user("al/ice"), ConfigEntity.user("")
        clients = [ConfigEntity.quota_of("al/ice", name) for name in ("app.1", "")]
        owners = [*clients, ConfigEntity.quota_of("", "app"), default_user, ConfigEntity.quota_of(None, "<default>")]
        for owner in owners:
            await registry.update(owner, lambda _: {"producer_byte_rate": "1"})
        await registry.update(user, lambda _: {"SCRAM-SHA-256": "x"})
        for view in (await registry.refresh(), await other.refresh(), await ConfigRegistry(tree).refresh()):
            assert {entity for entity, those in view.with_quotas() if those} == {*owners, user}
            assert sorted(view.users()) == ["", "al/ice"]
        # Apache Kafka's paths.
        assert await tree.exists("/config/users/<default>/clients/app") is not None
        assert await tree.exists("/config/clients/%3Cdefault%3E") is not None


async def test_node_of_a_client_goes_with_its_last_quota(home: TreeBackend) -> None:
    async with with_topic(home) as tree:
        registry = ConfigRegistry(tree)
        owners = [
            ConfigEntity.quota_of("alice", "app"),
            ConfigEntity.quota_of(None, "app"),
            ConfigEntity.address("::1"),
        ]
        for owner in owners:
            await registry.update(owner, lambda _: {"x": "1"})
            await registry.update(owner, lambda _: {})
            assert await tree.exists(owner.path) is None
        assert not [those for _, those in (await registry.refresh()).with_quotas() if those]
