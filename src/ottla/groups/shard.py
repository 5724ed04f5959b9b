"""The groups of one partition of `__consumer_offsets`: decide, log, apply.

A command is decided on the applied state, its records are appended as one batch, and `replay`, the function that
start-up uses too, applies them.  The reply leaves when the log is stable up to the batch's end.  Commands that arrive
meanwhile are decided on the applied state and answered after the flush that covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
    TransactionalProducer,
    WriteMarker,
)
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.deadlines import Deadlines
from ottla.groups.group import IssuedMemberIds
from ottla.groups.group_log import GroupLog, GroupRecord
from ottla.groups.group_table import GroupMetrics, GroupTable
from ottla.groups.offset_requests import DeletedTopicTombstones, OffsetExpiry, OffsetRequests, write_in_batches
from ottla.groups.refusals import code_for_member, refusal, refused
from ottla.groups.replies import (
    ConsumerGroupDescription,
    ConsumerGroupHeartbeatReply,
    DescribedGroup,
    JoinReply,
    LeaveReply,
    LeftMember,
    ListedGroup,
    ListReply,
    SyncReply,
)
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shared_bytes import SharedBytes, SharedPart
from ottla.groups.subscription_pattern import SubscriptionPatterns
from ottla.groups.topics_image import TopicsImage, deleted_topics
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.observe.events import MultilineFact
from ottla.runtime.clock import Moment
from ottla.runtime.held_replies import HeldReplies

# Deadlines that take effect in one `on_time`: after a long pause thousands may have passed, and others wait.
DEADLINES_PER_CALL: Final = 64


class GroupShard:
    """`new_member_id` generates a new member id from a client's id; `times_of` returns the current times of a consumer
    group by its id; all shards of a broker share `member_bytes` and `offset_bytes`.

    No reply is called while a command is being decided, so a reply may submit the next command.
    """

    def __init__(
        self,
        log: GroupLog,
        settings: GroupSettings,
        new_member_id: Callable[[str], str],
        topics: TopicsImage,
        times_of: Callable[[str], ConsumerTimes],
        member_bytes: SharedBytes,
        offset_bytes: SharedBytes,
    ) -> None:
        self.settings: Final = settings
        self.deadlines: Final = Deadlines()
        self.issued_ids: Final = IssuedMemberIds(self.deadlines)
        self.member_bytes: Final = member_bytes
        self.new_member_id: Final = new_member_id
        self._log: Final = log
        self._topics = topics
        self._times_of: Final = times_of
        self._patterns: Final = SubscriptionPatterns()
        self._held: Final = HeldReplies()
        # The exclusive end of the newest batch that is applied.
        self._appended_end = 0
        self._failure: ErrorCode | None = None
        self._offset_bytes: Final = SharedPart(offset_bytes)
        self._table: Final = GroupTable(
            lambda group_id: ClassicGroup(group_id, self), self._new_consumer_group, self._offset_bytes
        )
        self._offsets: Final = OffsetRequests(self._table, self, offset_bytes)
        self._expiry: Final = OffsetExpiry(self._table, self)
        self._topic_tombstones: Final = DeletedTopicTombstones(self._table, self)
        # The type of a command determines the type of its reply, which no single annotation can express.
        self._deciders: Final[dict[type, Callable[[Any, Callable[[Any], None], Moment], None]]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            LeaveGroup: self._leave,
            CommitOffsets: self._offsets.commit,
            WriteMarker: self._write_marker,
            FetchOffsets: self._fetch_offsets,
            DeleteOffsets: self._delete_offsets,
            ListGroups: self._list,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete,
            ConsumerGroupHeartbeat: self._consumer_heartbeat,
            DescribeConsumerGroup: self._describe_consumer,
        }

    def __len__(self) -> int:
        """The count of groups."""
        return len(self._table)

    def metrics(self) -> Iterator[GroupMetrics]:
        """Every group as it is when its turn comes; those made after the first are not among them."""
        for group in list(self._table):
            offsets = self._table.offsets(group.group_id)
            yield GroupMetrics(group.group_id, group.kind, group.state_name, group.members_count, offsets)

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record, at start-up and live; `producer_id` is that of its transaction, if any.

        Raises `GroupRecordError` (an `OttlaError`) for damaged bytes.  Unknown versions of keys are skipped.
        """
        self._table.replay(key, value, producer_id)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends a transaction."""
        self._table.end_transaction(producer_id, commits=commits)

    def loaded(self, moment: Moment, end_offset: int = 0) -> None:
        """Replay has ended: every session restarts.  Replies wait until the log is stable up to `end_offset`, the
        end of what was replayed."""
        self._appended_end = end_offset
        for group in list(self._table):
            group.on_loaded(moment)
        self._expiry.start(moment)
        self._held.release(self._log.stable_end)

    # The type of the reply depends on the command: see `commands`.
    def submit(self, command: Command, reply: Callable[[Any], None], moment: Moment) -> None:
        """Decide `command`; `reply` is called exactly once, now or later, with the type that the command names."""
        if self._failure is not None:
            reply(refusal(command, self._failure))
        elif isinstance(command, Heartbeat):
            # By far the most frequent, and the only one that reveals nothing durable: it does not wait for the log.
            reply(self._heartbeat(command, moment))
        else:
            if self._topic_tombstones.due_ms is not None and isinstance(
                command, CommitOffsets | FetchOffsets | DeleteOffsets
            ):
                self._topic_tombstones.settle(command.group_id, moment)
            self._deciders[type(command)](command, reply, moment)
            self._held.release(self._log.stable_end)

    def on_stable(self, stable_end: int) -> None:
        """The log is stable below `stable_end`: replies that waited for it leave, in the order of their appends."""
        self._held.release(stable_end)

    def abandon_join(self, group_id: str, waiter: object, moment: Moment) -> None:
        """The connection `waiter` closed while its JoinGroup was parked.  A member that had not completed a join before
        is removed: it would hold its memory, and its place in the group, for a session time-out that it chose.
        """
        group = self._table.get(group_id)
        if self._failure is None and isinstance(group, ClassicGroup) and group.abandon_join(waiter, moment):
            self._forget_if_vacant(group_id)
            self._held.release(self._log.stable_end)

    def on_time(self, moment: Moment) -> None:
        """Handle deadlines that have passed.  When there are many, `next_due_ms` is still in the past afterwards: call
        again, after other work."""
        for _ in range(DEADLINES_PER_CALL):
            deadline = self.deadlines.take_due(moment.monotonic_ms)
            if deadline is None:
                break
            group = deadline.group
            decision = group.on_deadline(deadline, moment)
            records = () if decision is None else decision.records
            if records and self.write(records, moment) is not ErrorCode.NONE:
                group.on_append_failed(deadline, moment)
            self._forget_if_vacant(group.group_id)
        self._expiry.run(moment)
        self._topic_tombstones.run(moment)
        self._held.release(self._log.stable_end)

    def next_due_ms(self) -> int | None:
        """The monotonic time at which `on_time` should be called next; calling too early is harmless."""
        all_due = (self.deadlines.next_due_ms(), self._expiry.due_ms, self._topic_tombstones.due_ms)
        return min((due_ms for due_ms in all_due if due_ms is not None), default=None)

    def on_topics_changed(self, topics: TopicsImage, moment: Moment) -> None:
        """Committed offsets of deleted topics get tombstones, in slices; consumer groups compare the new topics at
        their next heartbeat.

        A topic that was recreated under its old name is another one: offsets committed for the old one are deleted,
        too.
        """
        before, self._topics = self._topics, topics
        gone = deleted_topics(before, topics)
        if gone and self._failure is None:
            self._topic_tombstones.add(gone, moment)
            for name in gone:
                self._table.forget_topic_name(name)

    def finish_tombstones(self, moment: Moment) -> None:
        """Write all remaining tombstones at once: a restart does not know of them."""
        self._topic_tombstones.finish(moment)

    def fail_all(self, error: ErrorCode) -> None:
        """The partition leaves this broker, or its disk failed: every waiting request gets `error`.

        The shard is of no use afterwards: a submit is answered with the same error.
        """
        self._failure = error
        self._expiry.stop()
        self._topic_tombstones.stop()
        self._held.fail(lambda reply: refused(reply, error))
        for group in list(self._table):
            group.fail_all(error)
        self.deadlines.clear()
        self.issued_ids.clear()
        self._offset_bytes.release()

    def suspend(self, error: ErrorCode) -> None:
        """This broker may have been replaced: every waiting request and every later one gets `error` until `resume`.

        The groups stay as they are, and `on_time` is not called meanwhile.
        """
        self._failure = error
        self._held.fail(lambda reply: refused(reply, error))
        for group in list(self._table):
            group.suspend(error)

    def resume(self, moment: Moment) -> None:
        """No other broker has coordinated these groups.  Members were refused meanwhile: their times restart."""
        self._failure = None
        for group in list(self._table):
            group.resume(moment)
        self._held.release(self._log.stable_end)

    def history(self, group_id: str) -> MultilineFact | None:
        """The last transitions of a group, for the log event of a failure."""
        group = self._table.get(group_id)
        return None if group is None else group.history.as_fact()

    def assert_sound(self) -> None:
        """The invariants between any two commands; for tests, since it walks over everything."""
        self._table.assert_sound()

    def write(
        self, records: Sequence[GroupRecord], moment: Moment, producer: TransactionalProducer | None = None
    ) -> ErrorCode:
        try:
            end = self._log.append(records, moment.wall_ms, producer)
        except OttlaError as error:
            return error.error_code
        assert end > self._appended_end, (end, self._appended_end)
        self._appended_end = end
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for key, value in records:
            self.replay(key, value, producer_id)
        return ErrorCode.NONE

    def answer(self, reply: Callable[[Any], None], value: object) -> None:
        if self._failure is None:
            self._held.hold(self._appended_end, reply, value)
        else:
            # The disk failed during this decision: nothing will release the held replies.
            reply(refused(value, self._failure))

    def _join(self, command: JoinGroup, reply: Callable[[JoinReply], None], moment: Moment) -> None:
        group = self._joinable(command, moment)
        if isinstance(group, ErrorCode):
            self.answer(reply, JoinReply(group, command.member_id))
            return
        group.join(command, reply, moment)
        self._forget_if_vacant(command.group_id)

    def _joinable(self, command: JoinGroup, moment: Moment) -> ClassicGroup | ErrorCode:
        """The group to join, made when it is not there; an empty consumer group becomes a classic one."""
        settings = self.settings
        if not command.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not settings.min_session_timeout_ms <= command.session_timeout_ms <= settings.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._table.get(command.group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if command.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = code_for_member(self.write(list(group.tombstones()), moment))
            if error is not ErrorCode.NONE:
                return error
        found = self._table.get(command.group_id)
        return found if isinstance(found, ClassicGroup) else self._table.add_classic(command.group_id)

    def _sync(self, command: SyncGroup, reply: Callable[[SyncReply], None], moment: Moment) -> None:
        group = self._table.get(command.group_id)
        if isinstance(group, ClassicGroup):
            group.sync(command, reply, moment)
        else:
            self.answer(reply, SyncReply(_unknown_member(command.group_id)))

    def _heartbeat(self, command: Heartbeat, moment: Moment) -> ErrorCode:
        group = self._table.get(command.group_id)
        if isinstance(group, ClassicGroup):
            return group.heartbeat(command, moment)
        return _unknown_member(command.group_id)

    def _leave(self, command: LeaveGroup, reply: Callable[[LeaveReply], None], moment: Moment) -> None:
        group = self._table.get(command.group_id)
        if isinstance(group, ClassicGroup):
            answer = group.leave(command, moment)
            self._forget_if_vacant(command.group_id)
        elif not command.group_id:
            answer = LeaveReply(ErrorCode.INVALID_GROUP_ID)
        else:
            unknown = [
                LeftMember(member.member_id, member.instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
                for member in command.members
            ]
            answer = LeaveReply(ErrorCode.NONE, unknown)
        self.answer(reply, answer)

    def _write_marker(self, command: WriteMarker, reply: Callable[[ErrorCode], None], moment: Moment) -> None:
        """The offsets take effect with the append: no later command finds them pending, and the reply comes after."""
        try:
            end = self._log.append_marker(command, moment.wall_ms)
        except OttlaError as error:
            self.answer(reply, error.error_code)
            return
        if end is not None:
            assert end > self._appended_end, (end, self._appended_end)
            self._appended_end = end
            self.replay_marker(command.producer_id, commits=command.marker.commits)
        self.answer(reply, ErrorCode.NONE)

    def _fetch_offsets(self, command: FetchOffsets, reply: Callable[[Any], None], moment: Moment) -> None:
        self.answer(reply, self._offsets.fetch(command))

    def _delete_offsets(self, command: DeleteOffsets, reply: Callable[[Any], None], moment: Moment) -> None:
        self.answer(reply, self._offsets.delete(command, moment))

    def _list(self, command: ListGroups, reply: Callable[[ListReply], None], moment: Moment) -> None:
        states = {state.lower() for state in command.states}
        kinds = {kind.lower() for kind in command.kinds}
        listed = [
            ListedGroup(group.group_id, group.protocol_type, group.state_name, group.kind)
            for group in self._table
            if (not states or group.state_name.lower() in states) and (not kinds or group.kind in kinds)
        ]
        self.answer(reply, ListReply(ErrorCode.NONE, listed))

    def _describe(self, command: DescribeGroup, reply: Callable[[DescribedGroup], None], moment: Moment) -> None:
        group = self._table.get(command.group_id)
        if isinstance(group, ClassicGroup):
            self.answer(reply, group.describe())
        else:
            self.answer(reply, DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, command.group_id))

    def _delete(self, command: DeleteGroup, reply: Callable[[ErrorCode], None], moment: Moment) -> None:
        group = self._table.get(command.group_id)
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            records = [*self._table.offset_tombstones(command.group_id), *group.tombstones()]
            error = code_for_member(write_in_batches(self, records, moment))
        self.answer(reply, error)

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            self.settings,
            self.deadlines,
            lambda: self._topics,
            self._patterns,
            self.new_member_id,
            lambda: self._times_of(group_id),
            self.member_bytes,
        )

    def _consumer_heartbeat(
        self, command: ConsumerGroupHeartbeat, reply: Callable[[ConsumerGroupHeartbeatReply], None], moment: Moment
    ) -> None:
        before = self._table.get(command.group_id)
        if isinstance(before, ClassicGroup) and not before.is_empty:
            text = f"the group {command.group_id} is a classic one with members; stop them first"
            self.answer(reply, ConsumerGroupHeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, text))
            return
        group = before if isinstance(before, ConsumerGroup) else self._table.new_consumer(command.group_id)
        decision = group.heartbeat(command, moment)
        self._expiry.note_member(command.group_id)
        if not decision.records:
            self.answer(reply, decision.reply)
            return
        # An empty classic group becomes a consumer group: its tombstones and the first records are one batch.
        tombstones = before.tombstones() if isinstance(before, ClassicGroup) else ()
        self._table.put(group)
        error = self.write([*tombstones, *decision.records], moment)
        if error is ErrorCode.NONE:
            if before is not None and before is not group:
                before.stop()
            self.answer(reply, decision.reply)
            return
        if before is not group:
            group.stop()
            self._table.restore(command.group_id, before)
        self.answer(reply, ConsumerGroupHeartbeatReply(code_for_member(error), "the group's log refused its records"))

    def _describe_consumer(
        self, command: DescribeConsumerGroup, reply: Callable[[ConsumerGroupDescription], None], moment: Moment
    ) -> None:
        group = self._table.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            self.answer(reply, group.describe())
        else:
            text = f"there is no consumer group {command.group_id}"
            self.answer(reply, ConsumerGroupDescription(ErrorCode.GROUP_ID_NOT_FOUND, command.group_id, text))

    def _forget_if_vacant(self, group_id: str) -> None:
        group = self._table.get(group_id)
        if group is not None:
            self._table.forget_if_vacant(group)


def _unknown_member(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
