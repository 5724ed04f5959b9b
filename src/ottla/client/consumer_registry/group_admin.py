"""What an operator does with groups of the tree: looks, sets offsets, deletes.

Setting an offset writes the offset node without a claim, over the version that was read: so an owner is fenced,
releases the partition, and starts from the new offset (docs/consumers.md, rule 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from ottla.client.consumer_registry.group_contents import group_exists, group_names, read_group
from ottla.client.consumer_registry.group_paths import BadGroupName, GroupPaths
from ottla.client.consumer_registry.group_standing import standing_of
from ottla.client.consumer_registry.missing_parents import make_missing
from ottla.client.consumer_registry.node_content import OffsetContent, encode_offset
from ottla.client.groups.group_types import TREE, CommittedOffset, GroupDescription, ListedGroup
from ottla.client.groups.groups import UnknownGroup
from ottla.client.wire.errors import BrokerRefused
from ottla.coordination import layout
from ottla.coordination.topic_nodes import TopicPointer, decode_pointer
from ottla.coordination.tree import (
    ANY_VERSION,
    BadVersion,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    Tree,
    batches,
)
from ottla.coordination.zookeeper.access import DigestCredentials
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import BlockingLoop

# What members of Kafka's groups say; and Algorithm 1's way to share.
_PROTOCOL_TYPE: Final = "consumer"
_ASSIGNOR: Final = "range"
# Each lost to an owner's commit, of which there is one at a time.
_ATTEMPTS_MAX: Final = 20
_WRITES_AT_ONCE: Final = 100
_WRITER: Final = "operator"
_STOP_FIRST: Final = "stop its consumers first; `ottla group describe GROUP --members` shows them"


class GroupWritesLost(OttlaError):
    """Others were always faster."""

    hint = "try again; nothing of it was set"


class TreeGroups:
    """The groups below `/consumers` of a tree.  `now_ms` dates what is written, for people."""

    def __init__(self, tree: Tree, now_ms: Callable[[], int]) -> None:
        self._tree = tree
        self._now_ms = now_ms

    async def list_groups(self) -> list[ListedGroup]:
        """By name, each as `describe` would show it."""
        topics = await self._topics()
        found: list[ListedGroup] = []
        for name in await group_names(self._tree):
            with suppress(BadGroupName, UnknownGroup):  # no group of ours; deleted meanwhile
                group = await self._described(name, topics)
                found.append(ListedGroup(name, group.protocol_type, group.state, group.kind))
        return found

    async def describe(self, group_id: str) -> GroupDescription:
        """Its streams as members, with what they own.  Raises `UnknownGroup`."""
        return await self._described(group_id, await self._topics())

    async def has(self, group_id: str) -> bool:
        try:
            return await group_exists(self._tree, GroupPaths.of(group_id))
        except BadGroupName:
            return False

    async def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Without the partitions that have none, and without topics that are there no more."""
        if not await self.has(group_id):
            return {}
        contents = await read_group(self._tree, GroupPaths.of(group_id))
        topics = await self._pointers({each.topic for each in contents.offsets})
        found: dict[TopicPartition, CommittedOffset] = {}
        for partition, (content, _) in contents.offsets.items():
            pointer = topics.get(partition.topic)
            if content.offset != NO_OFFSET and pointer is not None and content.topic_id in (None, pointer.topic_id):
                found[partition] = CommittedOffset(content.offset)
        return found

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets, whether the group has consumers or not; it is made when there is none.

        Raises `BadGroupName`, `GroupWritesLost`.
        """
        paths = GroupPaths.of(group_id)
        topics = await self._pointers({partition.topic for partition in offsets})
        standing = [layout.CONSUMERS, paths.root, paths.offsets]
        await make_missing(self._tree, [*standing, *map(paths.offsets_of, sorted({each.topic for each in offsets}))])
        contents = {
            partition: self._content(offset, topics.get(partition.topic)) for partition, offset in offsets.items()
        }
        await self._write(paths, contents)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        """Forget offsets; refused for topics that consumers of the group read.  Raises `UnknownGroup`.

        The nodes stay, without an offset: the versions of a new one would start at 0, and an owner that was paused
        for long could write to it.
        """
        group = await self.describe(group_id)
        paths = GroupPaths.of(group_id)
        contents = await read_group(self._tree, paths)
        existing = await self._tree.children(layout.TOPICS)
        read = {
            topic for node in contents.consumers.values() for topic in node.subscription.streams_counts(existing)
        } | {partition.topic for member in group.members for partition in member.assignment}
        outcomes: dict[TopicPartition, BrokerRefused | None] = {}
        forgotten: dict[TopicPartition, OffsetContent] = {}
        for partition in partitions:
            if partition.topic in read:
                outcomes[partition] = BrokerRefused(
                    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                    f"group {group_id}, {partition}",
                    "consumers of the group read the topic",
                    hint="stop them, or end their subscription, first",
                )
                continue
            outcomes[partition] = None
            if partition in contents.offsets:
                forgotten[partition] = self._content(NO_OFFSET, None)
        await self._write(paths, forgotten)
        return outcomes

    async def delete(self, group_id: str) -> None:
        """Delete a group without consumers, with its offsets.  Raises `UnknownGroup`, `BrokerRefused`."""
        for _ in range(_ATTEMPTS_MAX):
            paths = GroupPaths.of(group_id)
            group = await self.describe(group_id)
            if group.is_live or await self._children(paths.ids):
                raise BrokerRefused(
                    ErrorCode.NON_EMPTY_GROUP, f"group {group_id}", "it has consumers", hint=_STOP_FIRST
                )
            try:
                await self._delete(paths)
            except (NoNode, NotEmpty):
                continue  # a consumer joined, or another admin deletes it, too: look again
            return
        raise GroupWritesLost(f"group {group_id} changed while it was being deleted", hint=_STOP_FIRST)

    # --- reads ------------------------------------------------------------------------------------------------

    async def _described(self, group_id: str, topics: Mapping[str, TopicPointer]) -> GroupDescription:
        if not await self.has(group_id):
            raise UnknownGroup(f"group {group_id} does not exist")
        contents = await read_group(self._tree, GroupPaths.of(group_id))
        counts = {name: len(pointer.assignment) for name, pointer in topics.items()}
        state, members, problems = standing_of(contents, counts)
        return GroupDescription(group_id, TREE, state, _PROTOCOL_TYPE, _ASSIGNOR, -1, None, members, problems)

    async def _topics(self) -> dict[str, TopicPointer]:
        return await self._pointers(await self._tree.children(layout.TOPICS))

    async def _pointers(self, names: Iterable[str]) -> dict[str, TopicPointer]:
        paths = {name: layout.topic_path(name) for name in names}
        nodes = await self._tree.get_many(list(paths.values()))
        return {
            name: decode_pointer(path, node.data)
            for (name, path), node in zip(paths.items(), nodes, strict=True)
            if node is not None and node.data
        }

    # --- writes -----------------------------------------------------------------------------------------------

    def _content(self, offset: int, pointer: TopicPointer | None) -> OffsetContent:
        topic_id = None if pointer is None else pointer.topic_id
        return OffsetContent(offset, None, topic_id, _WRITER, self._now_ms())

    async def _write(self, paths: GroupPaths, contents: Mapping[TopicPartition, OffsetContent]) -> None:
        """Write each offset node, and then the node that owners watch."""
        left = list(contents)
        for _ in range(_ATTEMPTS_MAX):
            nodes = await self._tree.get_many([paths.offset(partition) for partition in left])
            found = list(zip(left, nodes, strict=True))
            left = []
            for first in range(0, len(found), _WRITES_AT_ONCE):
                chunk = found[first : first + _WRITES_AT_ONCE]
                done = await asyncio.gather(
                    *(self._try_to_set(paths.offset(partition), contents[partition], node) for partition, node in chunk)
                )
                left += [partition for (partition, _), is_set in zip(chunk, done, strict=True) if not is_set]
            if not left:
                break
        if len(left) < len(contents):
            await self._tree.set(paths.offsets, b"", ANY_VERSION)
        if left:
            names = ", ".join(map(str, left))
            raise GroupWritesLost(
                f"group {paths.group}: {names} could not be set: owners committed each time",
                hint=GroupWritesLost.hint if len(left) == len(contents) else "the others are set; set these again",
            )

    async def _try_to_set(self, path: str, content: OffsetContent, known: Node | None) -> bool:
        """False: an owner was faster.  A damaged node is mended by it."""
        try:
            if known is None:
                await self._tree.create(path, encode_offset(content))
            else:
                await self._tree.set(path, encode_offset(content), known.stat.version)
        except (BadVersion, NodeExists, NoNode):
            return False
        return True

    async def _delete(self, paths: GroupPaths) -> None:
        """In one request, so that a joining consumer finds no half of a group; else the registry of consumers first."""
        registries = (paths.ids, paths.owners, paths.offsets)
        nodes = await self._tree.get_many(registries)
        existing = [path for path, node in zip(registries, nodes, strict=True) if node is not None]
        operations: list[Operation] = []
        for registry in existing:
            for topic in await self._tree.children(registry):
                below = f"{registry}/{topic}"
                operations += [DeleteNode(f"{below}/{name}") for name in await self._tree.children(below)]
                operations.append(DeleteNode(below))
            operations.append(DeleteNode(registry))
        operations.append(DeleteNode(paths.root))
        try:
            await self._tree.multi(operations)
        except RequestTooLarge:
            for batch in batches([operation] for operation in operations):
                await self._tree.multi(batch)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._tree.children(path)
        except NoNode:
            return []


# It has no ephemeral nodes; a session that is not ended ends soon.
_SESSION_TIMEOUT_MS: Final = 10_000


class TreeGroupAdmin:
    """`TreeGroups` for a caller that blocks, in one session with ZooKeeper; a `GroupHome`.  Use it with `with`.

    `digest` is `user:password`.  Raises `BadConnectString`, `ConfigError`, `ZooKeeperUnreachable`, `ZooKeeperRefused`.
    """

    def __init__(self, connect: str, digest: str | None, connection_timeout_ms: int) -> None:
        clock = SystemClock()
        home = ZooKeeperBackend(
            connect,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=connection_timeout_ms,
            digest=None if digest is None else DigestCredentials.parse(digest),
            clock=clock,
        )
        self._loop = BlockingLoop()
        try:
            self._session = self._loop.run(home.connect())
        except BaseException:
            self._loop.close()
            raise
        self._groups = TreeGroups(self._session, clock.now_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._loop.run(self._session.close())
        finally:
            self._loop.close()

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        found = self._loop.run(self._groups.list_groups())
        return [each for each in found if (not states or each.state in states) and (not kinds or each.kind in kinds)]

    def has(self, group_id: str) -> bool:
        return self._loop.run(self._groups.has(group_id))

    def describe(self, group_id: str) -> GroupDescription:
        return self._loop.run(self._groups.describe(group_id))

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        return self._loop.run(self._groups.committed(group_id))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Of a running group, too: its owners let go, and start there."""
        self._loop.run(self._groups.commit(group_id, {partition: at.offset for partition, at in offsets.items()}))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        return self._loop.run(self._groups.delete_offsets(group_id, partitions))

    def delete(self, group_id: str) -> None:
        self._loop.run(self._groups.delete(group_id))
