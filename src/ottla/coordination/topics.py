"""The topic registry: topics, the replicas of their partitions, and their leaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID, uuid4

from ottla.coordination import layout, topic_nodes
from ottla.coordination.changes import ChangeFollower, Changes, Subjects, changed_states
from ottla.coordination.configs import encode_config
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.state_changes import StateChange, StateChanges
from ottla.coordination.topic_nodes import Assignment, TopicDeletion, TopicPointer
from ottla.coordination.topics_view import NO_TOPICS, Partition, Topic, TopicsView
from ottla.coordination.tree import (
    BadVersion,
    ConnectionLoss,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Tree,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId, topic_name_problem
from ottla.model.partition_state import ChangeOutcome, PartitionState
from ottla.model.uuid_text import RESERVED_UUIDS, uuid_from_text, uuid_to_text
from ottla.runtime.mutex import Mutex

_SUBJECT: Final = "topics/"
DELETE_ATTEMPTS_MAX: Final = 10  # each but the last lost a race to another writer of the same topic


class TopicRegistry:
    """Topics in the tree.

    `view` is the state as of the last `refresh`; `on_stale` is called when there are newer changes.  Writes return when
    they are durable in the tree; call `refresh` to see them.
    """

    def __init__(
        self, tree: Tree, *, on_stale: Callable[[], None] | None = None, new_id: Callable[[], UUID] = uuid4
    ) -> None:
        self.view: TopicsView = NO_TOPICS
        self._tree = tree
        self._changes = Changes(tree)
        self._state_changes = StateChanges(tree, self._changes)
        self._follower = ChangeFollower(tree, on_stale)
        self._new_id = new_id
        self._refreshing = Mutex()

    async def refresh(self) -> TopicsView:
        """Read the changes since the last call; returns the same view when there are none."""
        async with self._refreshing:
            mark = await self._follower.look()
            missed = self._follower.missed(mark)
            if missed is None:
                await self._read(await self._tree.children(layout.TOPICS), {}, keep_others=False)
            else:
                await self._read_subjects(missed)
            self._follower.settle(mark)
            return self.view

    async def create(
        self,
        name: str,
        assignment: Assignment,
        broker_epochs: Mapping[NodeId, int],
        config: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic: pointer, configuration and the state of every partition, or nothing.

        `assignment` has the replicas of each partition; `broker_epochs` the live brokers, which start in sync.
        Raises `RequestError` with the code for CreateTopics.
        """
        await self.check_new(name, assignment)
        pointer = TopicPointer(self._fresh_id(), tuple(tuple(replicas) for replicas in assignment))
        states = _first_states(pointer, broker_epochs)
        operations = topic_nodes.creation(name, pointer, states, encode_config(config or {}))
        try:
            await self._changes.commit(operations, _subjects_of(name))
        except NodeExists as error:
            raise _topic_exists(name) from error
        except ConnectionLoss:
            if not await self._points_to(name, pointer.topic_id):
                raise
        partitions = zip(pointer.assignment, states, strict=True)
        return Topic(
            name,
            pointer.topic_id,
            tuple(Partition(index, replicas, state, 0) for index, (replicas, state) in enumerate(partitions)),
        )

    async def add_partitions(
        self, topic: Topic, added: Assignment, broker_epochs: Mapping[NodeId, int]
    ) -> Sequence[Partition]:  # fmt: skip
        """Add partitions to a topic, all of `added` or none, after those of `topic` as the caller knows it.

        Raises `RequestError` when the topic was deleted, recreated, or got partitions from others.
        """
        path = layout.topic_path(topic.name)
        first_index = len(topic.partitions)
        pointer, version = await self._pointer(path, topic)
        if pointer.topic_id != topic.topic_id or len(pointer.assignment) != first_index:
            raise _topic_moved_on(topic)
        all_replicas = (*pointer.assignment, *(tuple(replicas) for replicas in added))
        grown = TopicPointer(topic.topic_id, all_replicas)
        states = _first_states(grown, broker_epochs, first_index)
        operations = topic_nodes.growth(topic.name, grown, version, states)
        try:
            await self._changes.commit(operations, [_SUBJECT + topic.name])
        except (NoNode, BadVersion, NodeExists) as error:
            raise _topic_moved_on(topic) from error
        except ConnectionLoss:
            if (await self._pointer(path, topic))[0] != grown:
                raise
        numbered = enumerate(zip(added, states, strict=True), first_index)
        return [Partition(index, tuple(replicas), state, 0) for index, (replicas, state) in numbered]

    async def delete(self, name: str, topic_id: UUID | None = None) -> TopicDeletion:
        """Delete a topic from the tree and leave a note of it for `pending_deletions`.

        Raises `RequestError` when there is no such topic, or when the name's topic id is not the given `topic_id`.
        """
        path = layout.topic_path(name)
        for _ in range(DELETE_ATTEMPTS_MAX):
            try:
                pointer = topic_nodes.decode_pointer(path, (await self._tree.get(path)).data)
            except NoNode as error:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}") from error
            if topic_id is not None and pointer.topic_id != topic_id:
                problem = f"topic {name!r} has the id {uuid_to_text(pointer.topic_id)} now"
                raise RequestError(ErrorCode.INCONSISTENT_TOPIC_ID, problem)
            deletion = TopicDeletion(name, pointer.topic_id, len(pointer.assignment))
            try:
                await self._changes.commit(topic_nodes.removal(deletion), _subjects_of(name))
            except (NoNode, NotEmpty):
                continue  # deleted, recreated or grown since it was read: read again
            except ConnectionLoss:
                if await self._points_to(name, pointer.topic_id):
                    raise
            return deletion
        raise NodeDamaged(path, "has other child nodes than its assignment says")

    async def pending_deletions(self) -> list[TopicDeletion]:
        """Deleted topics whose directories may still exist: only these may be removed."""
        names = await self._tree.children(layout.DELETED_TOPICS)
        ids = [_id_of_node(f"{layout.DELETED_TOPICS}/{name}", name) for name in names]
        paths = [layout.deleted_topic_path(topic_id) for topic_id in ids]
        nodes = await self._tree.get_many(paths)
        return [
            topic_nodes.decode_deletion(path, topic_id, node.data)
            for path, topic_id, node in zip(paths, ids, nodes, strict=True)
            if node is not None
        ]

    async def finish_deletions(self, topic_ids: Sequence[UUID]) -> None:
        """The directories of these topics are removed from every disk."""
        paths = [layout.deleted_topic_path(topic_id) for topic_id in topic_ids]
        notes = [path for path, node in zip(paths, await self._tree.get_many(paths), strict=True) if node is not None]
        if notes:
            await self._tree.multi([DeleteNode(path) for path in notes])

    async def change_states(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        """Write the states of many partitions, each only over the version that it was computed from.

        The changes are independent of each other; each has its outcome.
        """
        return await self._state_changes.write(changes)

    async def check_new(self, name: str, assignment: Assignment) -> None:
        """Raise the `RequestError` that `create` would raise for this name and assignment; changes nothing."""
        await self.check_name(name)
        if not assignment:
            raise RequestError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
        for index, replicas in enumerate(assignment):
            if not replicas or len(set(replicas)) != len(replicas):
                problem = f"partition {index} needs at least one replica, each only once (given: {list(replicas)})"
                raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    async def check_name(self, name: str) -> None:
        """Raise the `RequestError` that `create` would raise for this name.

        It must be legal, and free: neither it nor a name that metrics would write like it is another topic's.
        """
        problem = topic_name_problem(name)
        if problem is not None:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        names = await self._tree.children(layout.TOPICS)
        if name in names:
            raise _topic_exists(name)
        metric_name = _metric_name(name)
        twin = next((other for other in names if _metric_name(other) == metric_name), None)
        if twin is not None:
            problem = f"topic {name!r} collides with {twin!r}: metrics write both '.' and '_' as '_'"
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)

    def _fresh_id(self) -> UUID:
        """A random id, as Kafka makes them: none of the reserved ones, and no leading '-' (it looks like a flag)."""
        while True:
            topic_id = self._new_id()
            if topic_id not in RESERVED_UUIDS and not uuid_to_text(topic_id).startswith("-"):
                return topic_id

    async def _pointer(self, path: str, topic: Topic) -> tuple[TopicPointer, int]:
        """The current pointer of the topic's name, and its version."""
        try:
            node = await self._tree.get(path)
        except NoNode as error:
            raise _topic_moved_on(topic) from error
        return topic_nodes.decode_pointer(path, node.data), node.stat.version

    async def _points_to(self, name: str, topic_id: UUID) -> bool:
        path = layout.topic_path(name)
        try:
            node = await self._tree.get(path)
        except NoNode:
            return False
        return topic_nodes.decode_pointer(path, node.data).topic_id == topic_id

    async def _read_subjects(self, subjects: Subjects) -> None:
        names: dict[str, None] = {}
        states: dict[str, set[int]] = {}
        for subject in subjects:
            if subject.startswith(_SUBJECT):
                names[subject.removeprefix(_SUBJECT)] = None
            elif (changed := changed_states(subject)) is not None:
                topic, indexes = changed
                states.setdefault(topic, set()).update(indexes)
        for name, indexes in list(states.items()):
            known = self.view.by_name.get(name)
            if name in names:
                del states[name]
            elif known is None or max(indexes) >= len(known.partitions):
                del states[name]
                names[name] = None
        if names or states:
            await self._read(list(names), states, keep_others=True)

    async def _read(self, names: Sequence[str], states: Mapping[str, set[int]], *, keep_others: bool) -> None:
        """Read the named topics again, and only some states of others; what remains is unchanged, or dropped.

        `states` has partition indexes of topics in the view.
        """
        topics = dict(self.view.by_name) if keep_others else {}
        if states:
            names = [*names, *await self._read_states(states, topics)]
        read = await self._read_topics(names)
        for name in names:
            topics.pop(name, None)
        topics |= read
        if topics != self.view.by_name:
            self.view = TopicsView.of(self.view.version + 1, topics)

    async def _read_states(self, states: Mapping[str, set[int]], topics: dict[str, Topic]) -> list[str]:
        """Put changed states into `topics`; returns the topics that no longer have them."""
        wanted = [(topics[name], sorted(indexes)) for name, indexes in states.items()]
        paths: list[str] = []
        for topic, indexes in wanted:
            paths += layout.state_paths(topic.name, topic.topic_id, indexes)
        nodes = iter(await self._tree.get_many(paths))
        gone: list[str] = []
        for topic, indexes in wanted:
            partitions = list(topic.partitions)
            for index in indexes:
                node = next(nodes)
                if node is None:
                    gone.append(topic.name)
                elif node.stat.version != partitions[index].state_version:
                    state = topic_nodes.decode_state(layout.state_path(topic.name, topic.topic_id, index), node.data)
                    partitions[index] = partitions[index]._replace(state=state, state_version=node.stat.version)
            changed = tuple(partitions)
            if changed != topic.partitions:
                topics[topic.name] = topic._replace(partitions=changed)
        return list(dict.fromkeys(gone))

    async def _read_topics(self, names: Sequence[str]) -> dict[str, Topic]:
        pointers = await self._read_pointers(names)
        paths: list[str] = []
        for name, pointer in pointers.items():
            paths += layout.state_paths(name, pointer.topic_id, range(len(pointer.assignment)))
        states = iter(await self._tree.get_many(paths))
        read: dict[str, Topic] = {}
        for name, pointer in pointers.items():
            known = self.view.by_name.get(name)
            nodes = [next(states) for _ in pointer.assignment]
            topic = _topic(name, pointer, nodes, known)
            if topic is not None:
                # The same object while it is equal: then nobody need compare it again.
                read[name] = known if known is not None and topic == known else topic
            elif await self._points_to(name, pointer.topic_id):
                raise NodeDamaged(layout.topic_path(name), "has partitions without a state node")
        return read

    async def _read_pointers(self, names: Sequence[str]) -> dict[str, TopicPointer]:
        paths = [layout.topic_path(name) for name in names]
        pointers: dict[str, TopicPointer] = {}
        for name, path, node in zip(names, paths, await self._tree.get_many(paths), strict=True):
            if node is not None:
                pointers[name] = topic_nodes.decode_pointer(path, node.data)
        return pointers


def _topic(name: str, pointer: TopicPointer, states: Sequence[Node | None], known: Topic | None) -> Topic | None:
    """A topic from its nodes, or None when one is missing.  Unchanged states are not parsed again."""
    partitions: list[Partition] = []
    # The id is part of the path, so an equal version there means the same content.
    same = known.partitions if known is not None and known.topic_id == pointer.topic_id else ()
    # Most partitions of a topic have equal states.
    decoded: dict[bytes, PartitionState] = {}
    for index, (replicas, node) in enumerate(zip(pointer.assignment, states, strict=True)):
        if node is None:
            return None
        if index < len(same) and same[index].state_version == node.stat.version and same[index].replicas == replicas:
            partitions.append(same[index])
        else:
            state = decoded.get(node.data)
            if state is None:
                path = layout.state_path(name, pointer.topic_id, index)
                state = decoded[node.data] = topic_nodes.decode_state(path, node.data)
            partitions.append(Partition(index, replicas, state, node.stat.version))
    return Topic(name, pointer.topic_id, tuple(partitions))


def _first_states(
    pointer: TopicPointer, broker_epochs: Mapping[NodeId, int], first_index: int = 0
) -> list[PartitionState]:  # fmt: skip
    states: list[PartitionState] = []
    for index, replicas in enumerate(pointer.assignment[first_index:], first_index):
        state = topic_nodes.first_state(replicas, broker_epochs)
        if state is None:
            problem = f"no replica of partition {index} is alive (assigned: {list(replicas)})"
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        states.append(state)
    return states


def _subjects_of(name: str) -> list[str]:
    """The subjects of a change of the whole topic: its nodes and its configuration."""
    return [_SUBJECT + name, f"config/topics/{name}"]


def _topic_exists(name: str) -> RequestError:
    return RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")


def _topic_moved_on(topic: Topic) -> RequestError:
    problem = f"topic {topic.name!r} was deleted, recreated or given partitions meanwhile"
    return RequestError(ErrorCode.INVALID_PARTITIONS, problem, hint="describe it again")


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


def _id_of_node(path: str, name: str) -> UUID:
    try:
        return uuid_from_text(name)
    except ValueError as error:
        raise NodeDamaged(path, str(error)) from error
