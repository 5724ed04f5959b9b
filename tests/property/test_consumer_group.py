"""A consumer group under all events of members, topics and the broker.

After every step at most one member may commit for a partition that it reads, and after a quiet time each member reads
its target.  Responses are lost, heartbeats come twice and late, members pause and die, the log refuses records.
"""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.groups.commands import CommitOffsets, ConsumerGroupHeartbeat
from ottla.groups.consumer.records import decode_key
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.replies import ConsumerGroupHeartbeatReply
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from tests.property.consumer_client import Partition, SimulatedClient
from tests.property.property_settings import example_settings, timeout_s
from tests.unit.groups.consumer.small_group import SmallGroup, topic_id

EXAMPLES_COUNT = 60
pytestmark = pytest.mark.timeout(timeout_s(EXAMPLES_COUNT))

TOPICS = ["a", "ab", "b"]
SUBSCRIPTIONS = st.sampled_from(
    [(["a"], None), (["a", "b"], None), (["ab", "b"], None), (None, "a.*"), (["b"], "ab?"), ([], None)]
)
HEARTBEAT_MS = 5_000
# A session (45 s) and a rebalance time-out (20 s), and a rebalance after each.
QUIET_ROUNDS = 40
LATE_MAX = 20


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.counts = {"a": (0, 3), "b": (0, 2)}
        self.group = SmallGroup(self.image())
        self.clients: list[SimulatedClient] = []
        self.late: list[ConsumerGroupHeartbeat] = []
        self.started_count = 0

    def image(self) -> TopicsImage:
        return TopicsImage.of(
            TopicImage(name, topic_id(name, incarnation), count) for name, (incarnation, count) in self.counts.items()
        )

    @property
    def running(self) -> list[SimulatedClient]:
        return [client for client in self.clients if client.is_running]

    def choose(self, data: st.DataObject) -> SimulatedClient:
        return data.draw(st.sampled_from(self.running))

    def deliver(self, command: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply | None:
        decision = self.group.group.heartbeat(command, self.group.moment)
        if self.group.is_log_full and decision.records:
            return None
        self.group.apply(decision)
        assert isinstance(decision.reply, ConsumerGroupHeartbeatReply)
        return decision.reply

    @rule(subscription=SUBSCRIPTIONS, instance_id=st.sampled_from([None, None, "i1", "i2"]))
    def start(self, subscription: tuple[list[str] | None, str | None], instance_id: str | None) -> None:
        if len(self.running) < 6:
            self.started_count += 1
            self.clients.append(SimulatedClient(f"m{self.started_count}", *subscription, instance_id))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), catches_up=st.booleans(), is_heard=st.sampled_from([True, True, True, False]))
    def beat(self, data: st.DataObject, catches_up: bool, is_heard: bool) -> None:
        client = self.choose(data)
        command = client.heartbeat()
        self.late = [*self.late, command][-LATE_MAX:]
        reply = self.deliver(command)
        client.hear(reply if is_heard else None)
        if catches_up:
            client.catch_up()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        self.choose(data).catch_up()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), subscription=SUBSCRIPTIONS)
    def subscribe(self, data: st.DataObject, subscription: tuple[list[str] | None, str | None]) -> None:
        client = self.choose(data)
        topics, pattern = subscription
        client.topics, client.pattern, client.is_unsure = topics or [], pattern or "", True

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def deliver_a_heartbeat_again(self, data: st.DataObject) -> None:
        """It comes twice because its connection broke, so the member is unsure, too, and will send all fields.

        The late join of a dead member creates a member without a client: its session removes it.
        """
        command = data.draw(st.sampled_from(self.late))
        self.deliver(command)
        for client in self.running:
            client.is_unsure |= client.member_id == command.member_id

    @precondition(lambda self: self.running)
    @rule(data=st.data(), for_a_while=st.booleans())
    def leave(self, data: st.DataObject, for_a_while: bool) -> None:
        client = self.choose(data)
        self.deliver(client.farewell(-2 if for_a_while and client.instance_id else -1))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.choose(data).stop()

    @rule(duration_ms=st.sampled_from([1_000, 10_000, 25_000, 50_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.group.pass_time(duration_ms)

    @rule(name=st.sampled_from(TOPICS), change=st.sampled_from(["grow", "delete", "recreate"]))
    def change_topic(self, name: str, change: str) -> None:
        incarnation, count = self.counts.pop(name, (0, 0))
        if change == "grow":
            self.counts[name] = (incarnation, min(count + 1, 5))
        elif change == "recreate":
            self.counts[name] = (incarnation + 1, 2)
        self.group.topics = self.image()

    @rule()
    def restart(self) -> None:
        before = self.group.group.state
        self.group.restart()
        assert vars(self.group.group.state) == vars(before)

    @rule(is_full=st.booleans())
    def fill_the_log(self, is_full: bool) -> None:
        self.group.is_log_full = is_full

    @invariant()
    def at_most_one_member_may_commit_for_a_partition_that_it_reads(self) -> None:
        owners: dict[Partition, list[str]] = defaultdict(list)
        for client in self.running:
            commit = CommitOffsets("g", client.member_id, client.instance_id, client.epoch, ())
            if client.epoch > 0 and self.group.group.check_commit(commit, self.group.moment) is ErrorCode.NONE:
                for partition in client.reads:
                    owners[partition].append(client.member_id)
        assert all(len(found) == 1 for found in owners.values()), owners

    def teardown(self) -> None:
        self.group.is_log_full = False
        for _ in range(QUIET_ROUNDS):
            self.quiet_round()
        records_count = len(self.group.log)
        self.quiet_round()
        assert len(self.group.log) == records_count, "a group at rest writes nothing"
        self.check_everybody_reads_what_it_should()
        self.check_log()

    def quiet_round(self) -> None:
        for client in self.running:
            client.hear(self.deliver(client.heartbeat()))
            client.catch_up()
        self.group.pass_time(HEARTBEAT_MS)

    def check_everybody_reads_what_it_should(self) -> None:
        state = self.group.group.state
        joined = {client.member_id: client for client in self.running if client.epoch > 0}
        assert joined.keys() == state.members.keys()
        instances = [client.instance_id for client in self.running if client.instance_id]
        assert len(joined) >= len(self.running) - (len(instances) - len(set(instances)))
        assert state.name == ("Stable" if joined else "Empty")
        wanted = set()
        for client in joined.values():
            wanted |= {name for name in client.topics or [] if name in self.counts}
            if client.pattern:
                wanted |= {name for name in self.counts if name in ("a", "ab")}
            read = {topic: {number for id_, number in client.reads if id_ == topic} for topic, _ in client.reads}
            assert read == dict(state.targets.get(client.member_id, {}))
        everything = {
            (topic_id(name, incarnation), number)
            for name, (incarnation, count) in self.counts.items()
            if name in wanted
            for number in range(count)
        }
        read_by_all = [partition for client in joined.values() for partition in client.reads]
        assert sorted(read_by_all) == sorted(everything)

    def check_log(self) -> None:
        """After any compaction of the log, the remaining records give the same state."""
        newest = {record.key: index for index, record in enumerate(self.group.log)}
        cut = random.Random(len(self.group.log)).randrange(len(self.group.log) + 1)
        replayed = ConsumerGroupState("g")
        for index, record in enumerate(self.group.log):
            if index >= cut or newest[record.key] == index:
                replayed.replay(decode_key(record.key), record.value)
        assert vars(replayed) == vars(self.group.group.state)


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = example_settings(EXAMPLES_COUNT, steps_count=60)
