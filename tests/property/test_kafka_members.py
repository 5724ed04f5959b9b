"""Members of a KIP-848 group with the broker's own group: under lost and late messages, pauses and kills.

At any time at most one process owns a partition, until it is committed and released; committed offsets were
processed, and never decrease; after a quiet time each member has its target.  The product's code runs on both sides.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.groups.commands import CommitOffsets, ConsumerGroupHeartbeat, TopicIdPartitions
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.protocol.api import API_VERSIONS
from ottla.protocol.schemas.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.describe_configs import DescribeConfigsRequest
from ottla.protocol.schemas.metadata import MetadataRequest
from ottla.protocol.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.schemas.offset_fetch import OffsetFetchRequest
from tests.property.kafka_member_node import Node
from tests.property.property_settings import example_settings, timeout_s
from tests.unit.client.membership.kafka_group.coordinator_answers import (
    commit_answer,
    metadata_answer,
    offsets_answer,
    settings_answer,
)
from tests.unit.groups.consumer.small_group import SmallGroup, topic_id

EXAMPLES_COUNT = 60
pytestmark = pytest.mark.timeout(timeout_s(EXAMPLES_COUNT))

NODES_MAX = 5
TURNS_MAX = 200
QUIET_STEP_MS = 1_000
# A session (45 s), a rebalance time-out (20 s), a rebalance after each.
QUIET_ROUNDS = 120


class Fate(Enum):
    """The fate of a request and its response."""

    ANSWERED = "answered"
    LATE = "late"
    """Applied now, answered at a later turn."""

    LOST = "lost"
    """Never applied."""

    UNANSWERED = "unanswered"
    """Applied, and the response is lost."""

    TWICE_LATER = "twice later"
    """A heartbeat is not applied now, but randomly later, when its connection is long closed."""


class KafkaMembersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.counts = {"a": 3, "b": 2}
        self.group = SmallGroup(self.image())
        self.committed: dict[TopicPartition, int] = {}
        self.nodes: list[Node] = []
        self.late: list[ConsumerGroupHeartbeat] = []
        self.started_count = 0

    def image(self) -> TopicsImage:
        return TopicsImage.of(TopicImage(name, topic_id(name), count) for name, count in self.counts.items())

    @property
    def now_ms(self) -> int:
        return self.group.now_ms

    @property
    def awake(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running and not node.is_paused]

    def choose(self, data: st.DataObject) -> Node:
        return data.draw(st.sampled_from(self.awake))

    def do(self, message: object, node: Node) -> object:
        match message:
            case MetadataRequest():
                return metadata_answer((name, topic_id(name), count) for name, count in self.counts.items())
            case DescribeConfigsRequest():
                return settings_answer(session_timeout_ms=45_000)
            case ConsumerGroupHeartbeatRequest():
                return self.beat(_command(message))
            case OffsetCommitRequest():
                return self.commit(message, node)
            case OffsetFetchRequest():
                [asked] = message.groups
                code = self.group.group.check_fetch(asked.member_id, asked.member_epoch)
                return offsets_answer(message, self.committed, code)
        raise AssertionError(message)

    def beat(self, command: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResponse:
        reply = self.group.send(command)
        rows = None if reply.assignment is None else reply.assignment
        return ConsumerGroupHeartbeatResponse(
            error_code=reply.error,
            error_message=reply.message,
            member_id=reply.member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=None
            if rows is None
            else Assignment([AssignedTopicPartitions(row.topic_id, list(row.partitions)) for row in rows]),
        )

    def commit(self, request: OffsetCommitRequest, node: Node) -> OffsetCommitResponse:
        command = CommitOffsets("g", request.member_id, None, request.generation_id_or_member_epoch, ())
        code = self.group.group.check_commit(command, self.group.moment)

        def commit(partition: TopicPartition, offset: int) -> ErrorCode:
            if code is ErrorCode.NONE:
                assert offset >= self.committed.get(partition, NO_OFFSET), f"{partition} is set back"
                assert offset <= node.held[partition].asked, f"{partition} was not passed"
                self.committed[partition] = offset
            return code

        return commit_answer(request, commit)

    def turn(self, node: Node, fate: Fate) -> bool:
        """One request of the node, or the answer to it; False when nothing is due."""
        ask = node.look(self.now_ms)
        if ask is None:
            return False
        if node.answer is not None:
            node.hear(node.answer, self.now_ms)
            return True
        message = ask.message(API_VERSIONS[ask.api].highest)
        if fate is Fate.TWICE_LATER and isinstance(message, ConsumerGroupHeartbeatRequest):
            self.late.append(_command(message))
        answer = None if fate in (Fate.LOST, Fate.TWICE_LATER) else self.do(message, node)
        if fate is Fate.LATE:
            node.answer = answer
        else:
            node.hear(answer if fate is Fate.ANSWERED else None, self.now_ms)
        self.check_starts(node)
        return True

    def check_starts(self, node: Node) -> None:
        """Nothing is skipped: a new owner starts at the group's offset."""
        while node.started:
            partition, offset = node.started.pop()
            assert offset <= self.committed.get(partition, NO_OFFSET)

    @rule(topics=st.sampled_from([{"a": 1}, {"a": 2, "b": 1}, {"b": 3}]))
    def start(self, topics: dict[str, int]) -> None:
        if len([node for node in self.nodes if node.is_running]) < NODES_MAX:
            self.started_count += 1
            self.nodes.append(Node(self.started_count, topics))

    @precondition(lambda self: self.awake)
    @rule(data=st.data(), fate=st.sampled_from([Fate.ANSWERED] * 6 + list(Fate)), count=st.integers(1, 8))
    def take_turns(self, data: st.DataObject, fate: Fate, count: int) -> None:
        node = self.choose(data)
        for _ in range(count):
            self.turn(node, Fate.ANSWERED)
        self.turn(node, fate)

    @precondition(lambda self: self.awake)
    @rule(data=st.data(), count=st.integers(1, 5), commits=st.booleans())
    def ask_past(self, data: st.DataObject, count: int, commits: bool) -> None:
        node = self.choose(data)
        node.ask_past(count, self.now_ms)
        if commits:
            node.commit()

    @precondition(lambda self: self.awake)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.choose(data).stop_all(self.now_ms)

    @precondition(lambda self: self.awake)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.choose(data).leave(self.now_ms)

    @precondition(lambda self: self.awake)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.choose(data).die()

    @precondition(lambda self: self.awake)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        self.choose(data).is_paused = True

    @rule()
    def wake_all(self) -> None:
        for node in self.nodes:
            node.is_paused = False

    @rule(step_ms=st.sampled_from([100, 1_000, 5_000]), steps_count=st.integers(1, 10), is_busy=st.booleans())
    def pass_time(self, step_ms: int, steps_count: int, is_busy: bool) -> None:
        """`is_busy`: running members and their streams continue meanwhile."""
        for _ in range(steps_count):
            if is_busy:
                self.work()
            self.group.pass_time(step_ms)
            self.one_owns_each_partition()

    def work(self) -> None:
        for node in self.awake:
            turns_count = 0
            while node.is_running and self.turn(node, Fate.ANSWERED):
                turns_count += 1
                assert turns_count < TURNS_MAX, f"{node.name} asks without end"
            if node.is_running:
                node.ask_past(1, self.now_ms)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def deliver_a_late_heartbeat(self, data: st.DataObject) -> None:
        self.beat(data.draw(st.sampled_from(self.late)))

    @rule(name=st.sampled_from(["a", "b"]))
    def add_a_partition(self, name: str) -> None:
        self.counts[name] = min(self.counts[name] + 1, 6)
        self.group.topics = self.image()

    @rule()
    def restart(self) -> None:
        self.group.restart()

    @invariant()
    def one_owns_each_partition(self) -> None:
        holders: dict[TopicPartition, list[str]] = defaultdict(list)
        for node in self.nodes:
            for partition in node.owns(self.now_ms):
                holders[partition].append(node.name)
        assert all(len(found) == 1 for found in holders.values()), dict(holders)

    def teardown(self) -> None:
        self.wake_all()
        for _ in range(QUIET_ROUNDS):
            self.work()
            for node in self.awake:
                node.stop_all(self.now_ms)
            self.group.pass_time(QUIET_STEP_MS)
            self.one_owns_each_partition()
        read = {topic for node in self.awake for topic in node.topics}
        everything = {TopicPartition(topic, number) for topic in read for number in range(self.counts[topic])}
        handed_out = [node.hands_out(self.now_ms) for node in self.awake]
        assert set().union(*handed_out) == everything
        for node in self.awake:
            node.commit()
        self.work()
        asked = {partition: held.asked for node in self.awake for partition, held in node.held.items()}
        behind = {partition for partition, offset in asked.items() if self.committed[partition] < offset - 1}
        assert not behind, "what was passed is committed"


def _command(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeat:
    rows = request.topic_partitions
    return ConsumerGroupHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        "client",
        "/127.0.0.1",
        None,
        None,
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        None,
        None,
        None if rows is None else [TopicIdPartitions(row.topic_id, row.partitions) for row in rows],
    )


TestKafkaMembers = KafkaMembersMachine.TestCase
TestKafkaMembers.settings = example_settings(EXAMPLES_COUNT, steps_count=60)
