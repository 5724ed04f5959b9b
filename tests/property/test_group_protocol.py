"""A group's guarantees hold under any actions of clients, clock, failing log and crashes.

At most one owner of a partition in a generation; every request is answered once, within its time-out, and not before
the log is stable; a replay of the log gives the shard's state; committed offsets change only by commits of members
that may commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.groups.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    SyncGroup,
    TopicPartitions,
)
from ottla.groups.replies import CommitReply, DescribedGroup, FetchReply, JoinReply, SyncReply
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, TOPIC, Coordinator

from .group_model import PARTITIONS_COUNT, Client, Owners, Request, logged_offsets, stored_generations
from .property_settings import example_settings, timeout_s

# All of them in `./dev suites`, a third in `./dev test`.
EXAMPLES_COUNT = 200
pytestmark = pytest.mark.timeout(timeout_s(EXAMPLES_COUNT))

SETTINGS = GroupSettings(max_size=3)
SESSION_TIMEOUTS_MS = (6_000, 15_000)
REBALANCE_TIMEOUTS_MS = (5_000, 20_000)
# With any mix of members and time-outs: no request may wait longer.
LONGEST_WAIT_MS = max(REBALANCE_TIMEOUTS_MS)

CLIENTS = st.integers(0, 4)
PROTOCOLS = st.sampled_from(
    [
        (JoinProtocol("range", b"1"),),
        (JoinProtocol("range", b"2"), JoinProtocol("sticky", b"2")),
        (JoinProtocol("sticky", b"3"), JoinProtocol("range", b"3")),
        (JoinProtocol("sticky", b"4"),),
    ]
)
# The states of a group without faults: members wait to join, wait to sync, for the leader, for the log.
STAGES = st.sampled_from([0, 1, 2, 3, 4, 4, 4])
UPSETS = st.sampled_from(
    [
        "a member leaves",
        "a member joins twice",
        "a member starts again",
        "the log refuses the assignment",
        "the shard leaves",
    ]
)
TROUBLES = st.sampled_from(
    ["crash", "power loss", "long silence", "deletion", "refusal", "refusal", "departure", "lapse", "settling"]
)
PARTITIONS = st.integers(0, PARTITIONS_COUNT - 1)


class GroupProtocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(SETTINGS)
        self.log = self.coordinator.log
        self.log.holds_back = True
        # Two of them are static; of these, the last two are two processes with one instance id.
        names = (None, None, "one", "two", "two")
        self.clients = [Client(f"client{number}", instance_id) for number, instance_id in enumerate(names)]
        self.owners = Owners()
        self.requests: list[Request] = []
        self.checked_batches_count = 0
        # The log refused to record that the group is empty: until the next generation it has less than the shard.
        self.log_lags = False
        self.is_leaving = False
        self.last_asked: tuple[Command, Callable[[Any], None], bool] | None = None

    @initialize(protocols=PROTOCOLS, stops_at=STAGES)
    def begin(self, protocols: tuple[JoinProtocol, ...], stops_at: int) -> None:
        self.group_becomes_stable(protocols, stops_at)

    def ask(self, command: Command, on_reply: Callable[[Any], None], *, is_decided_now: bool = True) -> Request:
        request = Request(type(command).__name__, self.coordinator.monotonic_ms)

        def reply(value: object) -> None:
            request.replies.append(value)
            assert len(request.replies) == 1, request
            if self.is_leaving:
                return
            # Replies during the decision of the command were decided on a log that ended here or before.
            needs_end = self.log.end if request.needs_end is None else request.needs_end
            if is_decided_now:
                assert self.log.stable_end >= needs_end, request
            on_reply(value)

        self.requests.append(request)
        self.last_asked = (command, on_reply, is_decided_now)
        self.coordinator.shard.submit(command, reply, self.coordinator.now)
        request.needs_end = self.log.end
        return request

    @rule(
        number=CLIENTS,
        protocols=PROTOCOLS,
        requires_id=st.booleans(),
        skips=st.booleans(),
        session_timeout_ms=st.sampled_from(SESSION_TIMEOUTS_MS),
        rebalance_timeout_ms=st.sampled_from(REBALANCE_TIMEOUTS_MS),
        forgets_id=st.booleans(),
    )
    def join(
        self,
        number: int,
        protocols: tuple[JoinProtocol, ...],
        requires_id: bool,
        skips: bool,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        forgets_id: bool,
    ) -> None:
        client = self.clients[number]
        command = JoinGroup(
            GROUP,
            "" if forgets_id else client.member_id,
            client.instance_id,
            client.name,
            "/h",
            "consumer",
            protocols,
            session_timeout_ms,
            rebalance_timeout_ms,
            None,
            requires_id,
            skips,
        )
        self.ask(command, client.on_joined, is_decided_now=False)

    @rule(protocols=PROTOCOLS)
    def everybody_joins(self, protocols: tuple[JoinProtocol, ...]) -> None:
        for number in range(3):
            self.join(number, protocols, False, True, SESSION_TIMEOUTS_MS[1], REBALANCE_TIMEOUTS_MS[1], False)

    def _sync(self, client: Client) -> None:
        assert client.joined is not None
        joined = client.joined
        command = SyncGroup(
            GROUP, joined.generation, client.member_id, client.instance_id, None, None, client.assignments()
        )
        self.ask(command, partial(self.on_synced, client, joined), is_decided_now=False)

    @rule(number=CLIENTS)
    def sync(self, number: int) -> None:
        if self.clients[number].joined is not None:
            self._sync(self.clients[number])

    @rule(leader_too=st.booleans())
    def everybody_syncs(self, leader_too: bool) -> None:
        for client in self.clients:
            joined = client.joined
            if joined is not None and (leader_too or joined.leader_id != joined.member_id):
                self._sync(client)

    def on_synced(self, client: Client, joined: JoinReply, reply: SyncReply) -> None:
        if reply.error is not ErrorCode.NONE:
            return
        stable = [record for batch in self.stable_batches() for record in batch]
        told = [
            member.assignment
            for found in stored_generations(stable)
            if found is not None and found.generation == joined.generation
            for member in found.members
            if member.member_id == joined.member_id
        ]
        assert reply.assignment in told, "an assignment was returned that is not stable"
        self.owners.note(client, joined.generation, reply.assignment)

    def stable_batches(self) -> list[tuple[Any, ...]]:
        end, stable = 0, []
        for batch in self.log.batches:
            end += len(batch)
            if end <= self.log.stable_end:
                stable.append(batch)
        return stable

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        command = Heartbeat(GROUP, client.generation, client.member_id, client.instance_id)
        request = self.ask(command, lambda reply: None, is_decided_now=False)
        assert request.replies, "a heartbeat waits"

    @rule(numbers=st.lists(CLIENTS, min_size=1, max_size=3), by_name=st.booleans())
    def leave(self, numbers: list[int], by_name: bool) -> None:
        leaving = []
        for client in (self.clients[number] for number in numbers):
            member_id = "" if by_name and client.instance_id is not None else client.member_id
            leaving.append(LeavingMember(member_id, client.instance_id))
        self.ask(LeaveGroup(GROUP, leaving), lambda reply: None)

    @rule(protocols=PROTOCOLS, stops_at=STAGES)
    def group_becomes_stable(self, protocols: tuple[JoinProtocol, ...], stops_at: int) -> None:
        """The steps of a group without faults, or the first of them."""
        self.log.refuses_with = None
        self.everybody_joins(protocols)
        self.flush(1)
        if stops_at > 0:
            self.time_passes(SETTINGS.initial_rebalance_delay_ms)
            self.flush(1)
        if stops_at > 1:
            self.everybody_syncs(leader_too=stops_at > 2)
        if stops_at > 3:
            self.flush(1)

    @rule(protocols=PROTOCOLS, stops_at=STAGES, number=st.integers(0, 2), upset=UPSETS)
    def day_is_upset(self, protocols: tuple[JoinProtocol, ...], stops_at: int, number: int, upset: str) -> None:
        """Sequences that are rare when every step is drawn separately."""
        self.group_becomes_stable(protocols, stops_at)
        if upset == "a member leaves":
            self.leave([number], by_name=False)
        elif upset == "the shard leaves":
            self.shard_leaves()
        elif upset == "the log refuses the assignment":
            self.log_refuses()
            self.everybody_syncs(leader_too=True)
            self.log_accepts_again()
        else:
            for _ in range(2):
                forgets_id = upset == "a member starts again"
                self.join(number, protocols, False, True, SESSION_TIMEOUTS_MS[1], REBALANCE_TIMEOUTS_MS[1], forgets_id)

    @rule()
    def last_request_comes_again(self) -> None:
        """A client that was cut off sends it over its next connection."""
        if self.last_asked is not None and isinstance(self.last_asked[0], JoinGroup | SyncGroup | LeaveGroup):
            command, on_reply, is_decided_now = self.last_asked
            self.ask(command, on_reply, is_decided_now=is_decided_now)

    @rule(number=CLIENTS, partition=PARTITIONS, offset=st.integers(0, 9), back=st.integers(0, 2))
    def commit(self, number: int, partition: int, offset: int, back: int) -> None:
        """By a member, sometimes in a former generation."""
        client = self.clients[number]
        self._commit(client.member_id, client.instance_id, client.generation - back // 2, partition, offset)

    @rule(offset=st.integers(0, 9), back=st.integers(0, 1))
    def everybody_commits(self, offset: int, back: int) -> None:
        for number, client in enumerate(self.clients):
            self._commit(client.member_id, client.instance_id, client.generation - back, number, offset)

    @rule(partition=PARTITIONS, offset=st.integers(0, 9))
    def commit_as_a_simple_consumer(self, partition: int, offset: int) -> None:
        self._commit("", None, -1, partition, offset)

    def _commit(self, member_id: str, instance_id: str | None, generation: int, partition: int, offset: int) -> None:
        allowed = self._may_commit(member_id, instance_id, generation)
        batches_count, refuses = len(self.log.batches), self.log.refuses_with
        offsets = [OffsetToCommit(TOPIC, partition, offset, -1, "")]

        def on_reply(reply: CommitReply) -> None:
            (error,) = reply.errors
            assert (error is ErrorCode.NONE) == (allowed and refuses is None), (error, allowed, refuses)

        self.ask(CommitOffsets(GROUP, member_id, instance_id, generation, offsets), on_reply)
        logged_count = len(self.log.batches) - batches_count
        assert logged_count == (allowed and refuses is None)

    def _may_commit(self, member_id: str, instance_id: str | None, generation: int) -> bool:
        described = self.described()
        if generation < 0 and described.state in {"Empty", "Dead"}:
            return True
        member = next((one for one in described.members if one.member_id == member_id), None)
        if member is None or (instance_id is not None and instance_id != member.instance_id):
            return False
        return generation == self.generation() and described.state in {"Stable", "PreparingRebalance"}

    def described(self, coordinator: Coordinator | None = None) -> DescribedGroup:
        """Without a wait for the log: the applied state of the shard."""
        group = self._group(coordinator or self.coordinator)
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, GROUP) if group is None else group.describe()

    def generation(self) -> int:
        group = self._group(self.coordinator)
        return 0 if group is None else int(group.rebalance.generation)

    def _group(self, coordinator: Coordinator) -> Any:
        # Reads internal state: every response of the shard waits for the log, and this test needs the applied state.
        return coordinator.shard._table.get(GROUP)

    @rule()
    def fetch(self) -> None:
        expected = {
            partition: offset
            for (group, _, partition), offset in logged_offsets(list(self.log.records())).items()
            if group == GROUP
        }

        def on_reply(reply: FetchReply) -> None:
            assert reply.error is ErrorCode.NONE
            told = {one.partition: one.offset for _, partitions in reply.topics for one in partitions}
            assert told == expected

        self.ask(FetchOffsets(GROUP, None), on_reply)

    @rule(partition=PARTITIONS)
    def delete_offsets(self, partition: int) -> None:
        self.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, [partition])]), lambda reply: None)

    def delete_group(self) -> None:
        is_empty = self.described().state == "Empty"
        refuses = self.log.refuses_with

        def on_reply(reply: ErrorCode) -> None:
            assert (reply is ErrorCode.NONE) == (is_empty and refuses is None)

        self.ask(DeleteGroup(GROUP), on_reply)

    @rule()
    def describe(self) -> None:
        self.ask(DescribeGroup(GROUP), lambda reply: None)

    @rule(duration_ms=st.sampled_from([1, 1_000, 3_000, 3_000, 5_999]))
    def time_passes(self, duration_ms: int) -> None:
        self.coordinator.pass_ms(duration_ms)

    @rule(share=st.floats(0, 1))
    def flush(self, share: float) -> None:
        end = self.log.stable_end + round((self.log.end - self.log.stable_end) * share)
        self.log.stable_end = end
        self.coordinator.shard.on_stable(end)

    def log_refuses(self) -> None:
        self.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR

    @rule(trouble=TROUBLES)
    def trouble_comes(self, trouble: str) -> None:
        """All disturbances of a group, as one rule among many, so that groups run undisturbed between."""
        if trouble == "crash":
            self.crash(keeps_tail=True)
        elif trouble == "power loss":
            self.crash(keeps_tail=False)
        elif trouble == "long silence":
            self.time_passes(400_000)
        elif trouble == "deletion":
            self.delete_group()
        elif trouble == "refusal":
            self.log_refuses()
        elif trouble == "departure":
            self.shard_leaves()
        elif trouble == "lapse":
            self.lease_lapses()
        else:
            self.settle()

    @precondition(lambda self: self.log.refuses_with is not None)
    @rule()
    def log_accepts_again(self) -> None:
        self.log.refuses_with = None

    def crash(self, keeps_tail: bool) -> None:
        """Waiting requests get no response; unstable records may be lost."""
        if not keeps_tail:
            self.log.cut(len(self.stable_batches()))
        self.requests.clear()
        self.log.refuses_with = None
        self.log_lags = False
        self.checked_batches_count = min(self.checked_batches_count, len(self.log.batches))
        self.coordinator.restart()

    def shard_leaves(self) -> None:
        """All requests are answered at once, and another broker continues with the whole log."""
        self.is_leaving = True
        self.coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
        self.is_leaving = False
        assert all(request.replies for request in self.requests), self.requests
        self.crash(keeps_tail=True)

    def lease_lapses(self) -> None:
        """All requests are answered at once, and the same shard continues with all members that had joined before."""
        group = self._group(self.coordinator)
        members = {} if group is None else group.rebalance.roster.members
        joined = {member_id for member_id, member in members.items() if not member.is_new}
        self.is_leaving = True
        self.coordinator.shard.suspend(ErrorCode.NOT_COORDINATOR)
        self.is_leaving = False
        assert all(request.replies for request in self.requests), self.requests
        self.coordinator.monotonic_ms += LONGEST_WAIT_MS
        self.coordinator.wall_ms += LONGEST_WAIT_MS
        self.coordinator.shard.resume(self.coordinator.now)
        self.coordinator.pass_ms(1)
        assert joined <= members.keys()

    def settle(self) -> None:
        """With a log that works, every request is answered within its time-out."""
        self.log.refuses_with = None
        self.log.holds_back = False
        self.coordinator.flush()
        self.coordinator.pass_ms(LONGEST_WAIT_MS)
        waiting = [request for request in self.requests if not request.replies]
        assert not waiting, waiting
        self.requests.clear()
        self.log.holds_back = True

    def teardown(self) -> None:
        self.settle()

    @invariant()
    def shard_is_sound(self) -> None:
        self.coordinator.shard.assert_sound()

    @invariant()
    def replay_makes_what_is_live(self) -> None:
        new_batches = self.log.batches[self.checked_batches_count :]
        self.checked_batches_count = len(self.log.batches)
        generations = stored_generations([record for batch in new_batches for record in batch])
        if None in generations:
            self.owners.forget()
        if self.log.refuses_with is not None:
            self.log_lags = True
        elif generations:
            self.log_lags = False
        replica = Coordinator(SETTINGS)
        for key, value in self.log.records():
            replica.shard.replay(key, value)
        live, replayed = self.described(), self.described(replica)
        replica.shard.loaded(replica.now)
        logged = {p: o for (_, _, p), o in logged_offsets(list(self.log.records())).items()}
        assert self._applied_offsets(self.coordinator) == self._applied_offsets(replica) == logged
        if self.log_lags:
            return
        assert (live.error is ErrorCode.NONE) or (replayed.error is not ErrorCode.NONE)
        if live.state in {"Stable", "Empty"} and replayed.error is ErrorCode.NONE:
            assert _durable(live) == _durable(replayed)

    def _applied_offsets(self, coordinator: Coordinator) -> dict[int, int]:
        fetched = coordinator.shard._offsets.fetch(FetchOffsets(GROUP, None))
        return {one.partition: one.offset for _, partitions in fetched.topics for one in partitions}


def _durable(described: DescribedGroup) -> object:
    return described.state, described.protocol_type, described.protocol_name, list(described.members)


TestGroupProtocol = GroupProtocol.TestCase
TestGroupProtocol.settings = example_settings(EXAMPLES_COUNT, steps_count=40)
