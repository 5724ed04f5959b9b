"""Groups of the tree as an operator sees and changes them: their contents and state; offsets are set, groups deleted.

Setting an offset writes the offset node without a claim, over the version that was read: so an owner is fenced,
releases the partition, and starts from the new offset (docs/consumers.md, rule 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self, TypeVar

from ottla.client.consumer_registry.group_nodes import (
    BadGroupName,
    ConsumerNode,
    GroupPaths,
    OffsetContent,
    decode_consumer,
    decode_offset,
    decode_owner,
    encode_offset,
)
from ottla.client.consumer_registry.partition_registry import make_missing
from ottla.client.groups.group_types import (
    EMPTY,
    RECONCILING,
    STABLE,
    TREE,
    CommittedOffset,
    GroupDescription,
    GroupMember,
    ListedGroup,
)
from ottla.client.groups.groups import UnknownGroup
from ottla.client.wire.errors import BrokerRefused
from ottla.consumers.share import GroupView, StreamId, share_of
from ottla.coordination import layout
from ottla.coordination.layout import CONSUMERS
from ottla.coordination.node_json import NodeDamaged
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
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.security import ZooKeeperSecurity
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import BlockingLoop

Key = TypeVar("Key")


class FoundOffset(NamedTuple):
    """An offset node, and the version that a change of it must expect."""

    content: OffsetContent
    version: int


class GroupContents(NamedTuple):
    """What was found; nodes in another format are listed in `damaged`, each with its path."""

    consumers: Mapping[str, ConsumerNode]
    owners: Mapping[TopicPartition, StreamId]
    offsets: Mapping[TopicPartition, FoundOffset]
    damaged: Sequence[NodeDamaged]


async def group_names(tree: Tree) -> list[str]:
    """The groups that have a node, sorted; also those without a consumer."""
    return await _children(tree, CONSUMERS)


async def group_exists(tree: Tree, paths: GroupPaths) -> bool:
    return await tree.exists(paths.root) is not None


async def read_group(tree: Tree, paths: GroupPaths) -> GroupContents:
    """All nodes of a group; empty when there is none of this name.  Not of one moment."""
    damaged: list[NodeDamaged] = []
    consumers: dict[str, ConsumerNode] = {}
    names = await _children(tree, paths.ids)
    for name, path, node in await _nodes(tree, [(name, paths.consumer(name)) for name in names]):
        try:
            consumers[name] = decode_consumer(path, node.data)
        except NodeDamaged as error:
            damaged.append(error)
    owners: dict[TopicPartition, StreamId] = {}
    owned = [(partition, paths.owner(partition)) for partition in await _partitions(tree, paths.owners, damaged)]
    for partition, path, node in await _nodes(tree, owned):
        try:
            owners[partition] = decode_owner(path, node.data)
        except NodeDamaged as error:
            damaged.append(error)
    offsets: dict[TopicPartition, FoundOffset] = {}
    kept = [(partition, paths.offset(partition)) for partition in await _partitions(tree, paths.offsets, damaged)]
    for partition, path, node in await _nodes(tree, kept):
        try:
            offsets[partition] = FoundOffset(decode_offset(path, node.data), node.stat.version)
        except NodeDamaged as error:
            damaged.append(error)
    return GroupContents(consumers, owners, offsets, damaged)


async def _children(tree: Tree, path: str) -> list[str]:
    try:
        return await tree.children(path)
    except NoNode:
        return []


async def _partitions(tree: Tree, parent: str, damaged: list[NodeDamaged]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for topic in await _children(tree, parent):
        for name in await _children(tree, f"{parent}/{topic}"):
            if name.isascii() and name.isdigit():
                found.append(TopicPartition(topic, int(name)))
            else:
                damaged.append(NodeDamaged(f"{parent}/{topic}/{name}", "is not named by a partition's number"))
    return sorted(found)


async def _nodes(tree: Tree, keyed: Sequence[tuple[Key, str]]) -> list[tuple[Key, str, Node]]:
    """Those that are still there."""
    nodes = await tree.get_many([path for _, path in keyed])
    return [(key, path, node) for (key, path), node in zip(keyed, nodes, strict=True) if node is not None]


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
    """`TreeGroups` for a caller that blocks, in one session with ZooKeeper; a `GroupOperations`.  Use it with `with`.

    Raises `BadConnectString`, `ConfigError`, `ZooKeeperUnreachable`, `ZooKeeperDistrusted`, `ZooKeeperRefused`.
    """

    def __init__(self, connect: str, security: ZooKeeperSecurity, connection_timeout_ms: int) -> None:
        clock = SystemClock()
        backend = ZooKeeperBackend(
            connect,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=connection_timeout_ms,
            security=security,
            clock=clock,
        )
        self._loop = BlockingLoop()
        try:
            self._session = self._loop.run(backend.connect())
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

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """The tree has no transactions."""
        return frozenset()

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Of a running group, too: its owners let go, and start there."""
        self._loop.run(self._groups.commit(group_id, {partition: at.offset for partition, at in offsets.items()}))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        return self._loop.run(self._groups.delete_offsets(group_id, partitions))

    def delete(self, group_id: str) -> None:
        self._loop.run(self._groups.delete(group_id))


# More of the same are counted.
PROBLEMS_MAX = 10


class GroupStanding(NamedTuple):
    """`state` in the words of Kafka's groups.  `problems` say what keeps it from being stable, for people."""

    state: str
    members: tuple[GroupMember, ...]
    problems: tuple[str, ...]


def standing_of(contents: GroupContents, partitions_counts: Mapping[str, int]) -> GroupStanding:
    """`partitions_counts` are those of all topics: a filter selects from them."""
    consumers = {
        consumer_id: dict(node.subscription.streams_counts(partitions_counts))
        for consumer_id, node in contents.consumers.items()
    }
    view = GroupView(consumers, partitions_counts)
    shares = {
        partition: stream for consumer_id in consumers for partition, stream in share_of(view, consumer_id).items()
    }
    misplaced = [
        _problem(partition, stream, contents.owners.get(partition), consumers)
        for partition, stream in sorted(shares.items())
        if contents.owners.get(partition) != stream
    ]
    abandoned = [
        f"{partition} is held by {stream}, and no consumer of the group reads it"
        for partition, stream in sorted(contents.owners.items())
        if partition not in shares
    ]
    missing = sorted({topic for topics in consumers.values() for topic in topics} - partitions_counts.keys())
    problems = [
        *_at_most(misplaced + abandoned),
        *_at_most([f"topic {topic} is read, and does not exist" for topic in missing]),
        *_at_most([str(error) for error in contents.damaged]),
    ]
    members = _members(contents, consumers, shares)
    state = EMPTY if not members else RECONCILING if misplaced or abandoned else STABLE
    return GroupStanding(state, members, tuple(problems))


def _problem(
    partition: TopicPartition, stream: StreamId, holder: StreamId | None, consumers: Mapping[str, object]
) -> str:
    if holder is None:
        return f"{partition} has no owner: it falls to {stream}"
    if holder.consumer_id not in consumers:
        return f"{partition} is held by {holder}, which has left or lost its session, until that ends"
    return f"{partition} is held by {holder}, and falls to {stream}"


def _members(
    contents: GroupContents, consumers: Mapping[str, Mapping[str, int]], shares: Mapping[TopicPartition, StreamId]
) -> tuple[GroupMember, ...]:
    """Each stream is a member: it is what owns partitions.  Also one that owns some and is registered no more."""
    owned: dict[StreamId, list[TopicPartition]] = {}
    for partition, stream in sorted(contents.owners.items()):
        owned.setdefault(stream, []).append(partition)
    targets: dict[StreamId, list[TopicPartition]] = {}
    for partition, stream in sorted(shares.items()):
        targets.setdefault(stream, []).append(partition)
    streams = set(owned)
    for consumer_id, topics in consumers.items():
        # A filter that selects nothing yet has its streams, too.
        count = max(topics.values(), default=contents.consumers[consumer_id].subscription.filter_streams_count)
        streams |= {StreamId(consumer_id, number) for number in range(count)}
    members: list[GroupMember] = []
    for stream in sorted(streams):
        node = contents.consumers.get(stream.consumer_id)
        client_id, host = ("", "") if node is None else (node.client_id, node.host)
        members.append(
            GroupMember(
                str(stream), None, client_id, host, -1, tuple(owned.get(stream, ())), tuple(targets.get(stream, ()))
            )
        )
    return tuple(members)


def _at_most(texts: list[str]) -> list[str]:
    rest = len(texts) - PROBLEMS_MAX
    return texts if rest <= 0 else [*texts[:PROBLEMS_MAX], f"... and {rest} more"]
