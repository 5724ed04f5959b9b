"""The topic registry: topics, the replicas of their partitions, and their leaders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final
from uuid import UUID, uuid4

from ottla.coordination import layout, topic_nodes
from ottla.coordination.assignment_changes import AssignmentChanges, Decide, Results
from ottla.coordination.changes import ChangeFollower, Changes, Mark, Subjects, changed_assignments, changed_states
from ottla.coordination.configs import encode_config
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.state_changes import StateChange, StateChanges
from ottla.coordination.topic_nodes import Assignment, TopicDeletion, TopicPointer
from ottla.coordination.topic_writes import DELETED_SUBJECT, TopicWrites, has_leftovers, topic_subject
from ottla.coordination.topics_view import NO_MOVE, NO_TOPICS, PartitionNode, Topic, TopicsView
from ottla.coordination.tree import (
    BadVersion,
    ConnectionLoss,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    SetNode,
    Tree,
    batches,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import RESERVED_UUIDS, NodeId, topic_name_problem, uuid_to_text
from ottla.model.partition_state import ChangeOutcome, PartitionState
from ottla.runtime.mutex import Mutex

DELETE_ATTEMPTS_MAX: Final = 10  # each but the last lost a race to another writer of the same topic
LEFTOVER_AGE_MS_MIN: Final = 3_600_000  # a creation in several requests may be under way

_SUBJECT: Final = topic_subject("")


class TopicRegistry:
    """Topics in the tree.

    `view` is the state as of the last `refresh`; `on_stale` is called when there are newer changes.  Writes return when
    they are durable in the tree; call `refresh` to see them.
    """

    def __init__(
        self, tree: Tree, *, on_stale: Callable[[], None] | None = None, new_id: Callable[[], UUID] = uuid4
    ) -> None:
        self.view: TopicsView = NO_TOPICS
        # Becomes the view when every state in it is of the replicas in it.
        self._latest: TopicsView = NO_TOPICS
        # Changes whenever there may be new deletion notes, also of topics that came and went between two views.
        self.deletions_version = 0
        self._tree = tree
        self._changes = Changes(tree)
        self._writes = TopicWrites(tree, self._changes)
        self._state_changes = StateChanges(tree, self._changes)
        self._assignment_changes = AssignmentChanges(tree, self._changes)
        self._follower = ChangeFollower(tree, on_stale)
        self._new_id = new_id
        self._refreshing = Mutex()

    async def refresh(self) -> TopicsView:
        """Read the changes since the last call; returns the same view when there are none."""
        async with self._refreshing:
            mark = await self._follower.look()
            await self._read_missed(mark)
            # A state that was written after its replicas were read may follow from others: read those before it shows.
            # Only of topics that are to show: however many others change meanwhile, the view does not wait for them.
            while self._latest is not self.view and await self._follower.has_moved(mark):
                mark = await self._follower.look()
                missed = self._follower.missed(mark)
                if missed is not None and not any(map(self._may_be_torn_by, missed)):
                    break
                await self._read_missed(mark)
            self.view = self._latest
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
        await self.install(name, pointer, states, config or {})
        partitions = zip(pointer.assignment, states, strict=True)
        return Topic(
            name,
            pointer.topic_id,
            tuple(PartitionNode(index, replicas, state, 0) for index, (replicas, state) in enumerate(partitions)),
        )

    async def install(
        self, name: str, pointer: TopicPointer, states: Sequence[PartitionState], config: Mapping[str, str]
    ) -> None:
        """Create a topic with this id and these states.  Raises `RequestError` when there is one of this name."""
        try:
            await self._writes.create(name, pointer, states, encode_config(config))
        except NodeExists as error:
            raise _topic_exists(name) from error
        except RequestTooLarge as error:
            raise _too_many_partitions(name, len(states)) from error
        except ConnectionLoss:
            if not await self._points_to(name, pointer.topic_id):
                raise

    async def add_partitions(
        self, topic: Topic, added: Assignment, broker_epochs: Mapping[NodeId, int]
    ) -> Sequence[PartitionNode]:
        """Add partitions to a topic, all of `added` or none, after those of `topic` as the caller knows it.

        Raises `RequestError` when the topic was deleted, recreated, or got partitions from others.
        """
        path = layout.topic_path(topic.name)
        first_index = len(topic.partitions)
        pointer, version = await self._pointer(path, topic)
        if pointer.topic_id != topic.topic_id or len(pointer.assignment) != first_index:
            raise _topic_moved_on(topic)
        all_replicas = (*pointer.assignment, *(tuple(replicas) for replicas in added))
        grown = pointer._replace(assignment=all_replicas)
        states = _first_states(grown, broker_epochs, first_index)
        try:
            await self._writes.grow(topic.name, grown, version, states)
        except (NoNode, BadVersion, NodeExists, NotEmpty) as error:
            raise _topic_moved_on(topic) from error
        except RequestTooLarge as error:
            raise _too_many_partitions(topic.name, len(all_replicas)) from error
        except ConnectionLoss:
            await self._tree.sync()
            if (await self._pointer(path, topic))[0] != grown:
                raise
        numbered = enumerate(zip(added, states, strict=True), first_index)
        return [PartitionNode(index, tuple(replicas), state, 0) for index, (replicas, state) in numbered]

    async def delete(self, name: str, topic_id: UUID | None = None) -> TopicDeletion:
        """Delete a topic from the tree and leave a note of it for `pending_deletions`.

        Raises `RequestError` when there is no such topic, or when the name's topic id is not the given `topic_id`.
        """
        path = layout.topic_path(name)
        for _ in range(DELETE_ATTEMPTS_MAX):
            try:
                node = await self._tree.get(path)
            except NoNode as error:
                raise _no_topic(name) from error
            if not node.data:
                raise _no_topic(name)
            pointer = topic_nodes.decode_pointer(path, node.data)
            if topic_id is not None and pointer.topic_id != topic_id:
                problem = f"topic {name!r} has the id {uuid_to_text(pointer.topic_id)} now"
                raise RequestError(ErrorCode.INCONSISTENT_TOPIC_ID, problem)
            deletion = TopicDeletion.of(name, pointer)
            try:
                await self._writes.delete(deletion, node.stat.version)
            except (NoNode, BadVersion, NodeExists):
                await self._tree.sync()
                continue  # deleted, recreated or grown since it was read: read again
            except ConnectionLoss:
                if await self._points_to(name, pointer.topic_id):
                    raise
            return deletion
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"{path} is being changed by many writers at once")

    async def pending_deletions(self) -> list[TopicDeletion]:
        """Deleted topics whose directories may still exist: only these may be removed."""
        names = await self._tree.children(layout.DELETED_TOPICS)
        return await self._notes([topic_nodes.id_of_node(f"{layout.DELETED_TOPICS}/{name}") for name in names])

    async def finish_deletions(self, topic_ids: Sequence[UUID], node_id: NodeId) -> None:
        """This broker has nothing of these topics any more, on any disk.  The last broker removes the note.

        It also removes the topic's nodes that a deletion which was cut off has left.
        """
        for _ in range(DELETE_ATTEMPTS_MAX):
            operations: list[Operation] = []
            for deletion, version in await self._versioned_notes(topic_ids):
                others = tuple(broker for broker in deletion.brokers if broker != node_id)
                path = layout.deleted_topic_path(deletion.topic_id)
                if not others:
                    if await self._writes.has_leftovers(deletion.name):
                        await self._writes.sweep(deletion.name, deletion.topic_id)
                    operations.append(DeleteNode(path, version))
                elif others != deletion.brokers:
                    data = topic_nodes.encode_deletion(deletion._replace(brokers=others))
                    operations.append(SetNode(path, data, version))
            try:
                for batch in batches([operation] for operation in operations):
                    await self._tree.multi(batch)
            except (BadVersion, NoNode):
                continue  # another broker removed itself meanwhile: read again
            return
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "deletion notes are being changed by many brokers at once")

    async def sweep(self, now_ms: int) -> int:
        """Remove what creations and deletions that were cut off left more than an hour ago; returns the topics' count.

        `now_ms` is by the tree's clock, as the nodes' ages are.  Nothing leads there, so no reader ever saw it.
        """
        names = await self._tree.children(layout.TOPICS)
        swept_count = 0
        for name, node in zip(names, await self._tree.get_many(list(map(layout.topic_path, names))), strict=True):
            if node is None or not has_leftovers(node):
                continue
            for topic_id in await self._writes.leftovers(name):
                stat = await self._tree.exists(layout.topic_id_path(name, topic_id))
                if stat is not None and now_ms - stat.ctime_ms > LEFTOVER_AGE_MS_MIN:
                    await self._writes.sweep(name, topic_id)
                    swept_count += 1
        return swept_count

    async def change_states(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        """Write the states of many partitions, each only over the version that it was computed from.

        The changes are independent of each other; each has its outcome.
        """
        return await self._state_changes.write(changes)

    async def change_assignments(
        self, name: str, topic_id: UUID | None, indexes: Collection[int], decide: Decide
    ) -> Results:
        """Write other replicas of a topic's partitions: see `AssignmentChanges.change`."""
        return await self._assignment_changes.change(name, topic_id, indexes, decide)

    async def resolve_states(self, changes: Sequence[StateChange]) -> list[ChangeOutcome]:
        """What became of changes of unknown outcome; those that are still unknown may be written again as they are."""
        return await self._state_changes.resolve(changes)

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
        metric_name = _metric_name(name)
        names = [other for other in await self._tree.children(layout.TOPICS) if _metric_name(other) == metric_name]
        taken = await self._read_pointers(names)  # a name's node alone is no topic
        if name in taken:
            raise _topic_exists(name)
        for twin in taken:
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
        if not node.data:
            raise _topic_moved_on(topic)
        return topic_nodes.decode_pointer(path, node.data), node.stat.version

    async def _points_to(self, name: str, topic_id: UUID) -> bool:
        """Whether the topic exists, by a read that sees every write of the past."""
        await self._tree.sync()
        pointer = (await self._read_pointers([name])).get(name)
        return pointer is not None and pointer.topic_id == topic_id

    async def _notes(self, topic_ids: Sequence[UUID]) -> list[TopicDeletion]:
        return [deletion for deletion, _ in await self._versioned_notes(topic_ids)]

    async def _versioned_notes(self, topic_ids: Sequence[UUID]) -> list[tuple[TopicDeletion, int]]:
        paths = [layout.deleted_topic_path(topic_id) for topic_id in topic_ids]
        nodes = await self._tree.get_many(paths)
        return [
            (topic_nodes.decode_deletion(path, topic_id, node.data), node.stat.version)
            for path, topic_id, node in zip(paths, topic_ids, nodes, strict=True)
            if node is not None
        ]

    def _may_be_torn_by(self, subject: str) -> bool:
        """Whether a change of this subject may have replaced the replicas of states that were read after it."""
        name = _topic_of_replicas(subject)
        return name is not None and self._latest.by_name.get(name) is not self.view.by_name.get(name)

    async def _read_missed(self, mark: Mark) -> None:
        missed = self._follower.missed(mark)
        if missed is None:
            self.deletions_version += 1
            await self._read(await self._tree.children(layout.TOPICS), {}, {}, keep_others=False)
        else:
            await self._read_subjects(missed)
        self._follower.settle(mark)

    async def _read_subjects(self, subjects: Subjects) -> None:
        names: dict[str, None] = {}
        states: dict[str, set[int]] = {}
        assignments: dict[str, set[int]] = {}
        for subject in subjects:
            if subject.startswith(_SUBJECT):
                names[subject.removeprefix(_SUBJECT)] = None
            elif subject.startswith(DELETED_SUBJECT):
                self.deletions_version += 1
            elif (changed := changed_states(subject)) is not None:
                topic, indexes = changed
                states.setdefault(topic, set()).update(indexes)
            elif (changed := changed_assignments(subject)) is not None:
                topic, indexes = changed
                states.setdefault(topic, set()).update(indexes)
                assignments.setdefault(topic, set()).update(indexes)
        for name, indexes in list(states.items()):
            known = self._latest.by_name.get(name)
            if name in names:
                del states[name]
            elif known is None or max(indexes) >= len(known.partitions):
                del states[name]
                names[name] = None
        if names or states:
            await self._read(list(names), states, assignments, keep_others=True)

    async def _read(
        self,
        names: Sequence[str],
        states: Mapping[str, set[int]],
        assignments: Mapping[str, set[int]],
        *,
        keep_others: bool,
    ) -> None:
        """Read the named topics again, and only some states of others; what remains is unchanged, or dropped.

        `states` has partition indexes of topics in the view, `assignments` those of them whose replicas changed too.
        """
        topics = dict(self._latest.by_name) if keep_others else {}
        if states:
            moved = {name: indexes for name, indexes in assignments.items() if name in states}
            names = [*names, *await self._read_states(states, moved, topics)]
        read = await self._read_topics(names)
        for name in names:
            topics.pop(name, None)
        topics |= read
        if topics != self._latest.by_name:
            self._latest = TopicsView.of(self._latest.version + 1, topics)

    async def _read_states(
        self, states: Mapping[str, set[int]], moved: Mapping[str, set[int]], topics: dict[str, Topic]
    ) -> list[str]:
        """Put changed states, and the replicas of those in `moved`, into `topics`; returns the topics that no longer
        have them.
        """
        pointers = await self._read_pointers(list(moved)) if moved else {}
        wanted = [(topics[name], sorted(indexes)) for name, indexes in states.items()]
        paths: list[str] = []
        for topic, indexes in wanted:
            paths += layout.state_paths(topic.name, topic.topic_id, indexes)
        nodes = iter(await self._tree.get_many(paths))
        gone: list[str] = []
        for topic, indexes in wanted:
            partitions = list(topic.partitions)
            pointer = pointers.get(topic.name)
            if topic.name in moved and not _is_of(pointer, topic):
                gone.append(topic.name)
                pointer = None
            for index in indexes:
                node = next(nodes)
                if pointer is not None and index in moved[topic.name]:
                    replicas, move = pointer.assignment[index], pointer.moves.get(index, NO_MOVE)
                    partitions[index] = partitions[index]._replace(replicas=replicas, move=move)
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
            known = self._latest.by_name.get(name)
            nodes = [next(states) for _ in pointer.assignment]
            topic = _topic(name, pointer, nodes, known)
            if topic is not None:
                # The same object while it is equal: then no reader compares it again.
                read[name] = known if known is not None and topic == known else topic
            elif await self._points_to(name, pointer.topic_id):
                raise NodeDamaged(layout.topic_path(name), "has partitions without a state node")
        return read

    async def _read_pointers(self, names: Sequence[str]) -> dict[str, TopicPointer]:
        paths = [layout.topic_path(name) for name in names]
        pointers: dict[str, TopicPointer] = {}
        for name, path, node in zip(names, paths, await self._tree.get_many(paths), strict=True):
            if node is not None and node.data:
                pointers[name] = topic_nodes.decode_pointer(path, node.data)
        return pointers


def _topic(name: str, pointer: TopicPointer, states: Sequence[Node | None], known: Topic | None) -> Topic | None:
    """A topic from its nodes, or None when one is missing.  Unchanged states are not parsed again."""
    partitions: list[PartitionNode] = []
    # The id is part of the path, so an equal version there means the same content.
    same = known.partitions if known is not None and known.topic_id == pointer.topic_id else ()
    # Most partitions of a topic have equal states.
    decoded: dict[bytes, PartitionState] = {}
    for index, (replicas, node) in enumerate(zip(pointer.assignment, states, strict=True)):
        if node is None:
            return None
        move = pointer.moves.get(index, NO_MOVE)
        if (
            index < len(same)
            and same[index].state_version == node.stat.version
            and same[index].replicas == replicas
            and same[index].move == move
        ):
            partitions.append(same[index])
        else:
            state = decoded.get(node.data)
            if state is None:
                path = layout.state_path(name, pointer.topic_id, index)
                state = decoded[node.data] = topic_nodes.decode_state(path, node.data)
            partitions.append(PartitionNode(index, replicas, state, node.stat.version, move))
    return Topic(name, pointer.topic_id, tuple(partitions))


def _first_states(
    pointer: TopicPointer, broker_epochs: Mapping[NodeId, int], first_index: int = 0
) -> list[PartitionState]:
    states: list[PartitionState] = []
    for index, replicas in enumerate(pointer.assignment[first_index:], first_index):
        state = topic_nodes.first_state(replicas, broker_epochs)
        if state is None:
            problem = f"no replica of partition {index} is alive (assigned: {list(replicas)})"
            raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        states.append(state)
    return states


def _topic_of_replicas(subject: str) -> str | None:
    """The topic of which a change of this subject may have changed partitions' replicas."""
    if subject.startswith(_SUBJECT):
        return subject.removeprefix(_SUBJECT)
    changed = changed_assignments(subject)
    return None if changed is None else changed[0]


def _is_of(pointer: TopicPointer | None, topic: Topic) -> bool:
    return (
        pointer is not None and pointer.topic_id == topic.topic_id and len(pointer.assignment) == len(topic.partitions)
    )


def _topic_exists(name: str) -> RequestError:
    return RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")


def _no_topic(name: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def _too_many_partitions(name: str, count: int) -> RequestError:
    problem = f"topic {name!r} cannot have {count} partitions: their replicas take more than a tree node can hold"
    return RequestError(ErrorCode.INVALID_PARTITIONS, problem)


def _topic_moved_on(topic: Topic) -> RequestError:
    problem = f"topic {topic.name!r} was deleted, recreated or given partitions meanwhile"
    return RequestError(ErrorCode.INVALID_PARTITIONS, problem, hint="describe it again")


def _metric_name(name: str) -> str:
    return name.replace(".", "_")
