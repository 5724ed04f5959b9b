"""A consumer group (KIP-848): decides a shard's commands on the state that its records make.

A method that decides reads the state and does not change it: it returns records, which `replay` applies later.  The
only other state is the deadlines, and the topics that the group has compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from ottla.groups.assignors import Assignment
from ottla.groups.commands import CommitOffsets, ConsumerGroupHeartbeat
from ottla.groups.consumer.admission import Sender, admit, fenced_instance, unknown_instance, unknown_member
from ottla.groups.consumer.heartbeat import (
    HeartbeatContext,
    HeartbeatDecision,
    decide_heartbeat,
    merge,
    preferred_name,
    put_departure,
)
from ottla.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    from_partitions,
    held_bytes,
    to_partitions,
)
from ottla.groups.consumer.records import ConsumerRecordKey, ConsumerRecordType, RecordDraft, tombstone
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.deadlines import Deadline, Deadlines
from ottla.groups.group import CONSUMER, Group, GroupKind
from ottla.groups.group_log import Decision, GroupRecord
from ottla.groups.replies import (
    ConsumerGroupDescription,
    ConsumerGroupHeartbeatReply,
    DescribedConsumer,
    NamedTopicPartitions,
)
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shared_bytes import SharedBytes, SharedPart, network_of
from ottla.groups.subscription_pattern import SubscriptionPatterns
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.observe.transition_history import TransitionHistory
from ottla.runtime.clock import Moment


def check_request(command: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    """Raises `RequestError` with the reason."""
    _check_names(command)
    if command.member_epoch == JOIN_EPOCH:
        _check_join(command)
    elif command.member_epoch == LEAVE_STATIC_EPOCH and command.instance_id is None:
        raise _invalid("a member epoch of -2 (a static member leaves for a while) needs an instance id")
    elif command.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"the member epoch {command.member_epoch} means nothing; the smallest is -2")
    if command.server_assignor is not None and command.server_assignor not in settings.consumer_assignors:
        offered = ", ".join(settings.consumer_assignors)
        raise RequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"this broker has no assignor {command.server_assignor!r}; it offers {offered} "
            "(group.consumer.assignors; the client's group.remote.assignor)",
        )


def _check_names(command: ConsumerGroupHeartbeat) -> None:
    needs_member_id = command.makes_own_id or command.member_epoch > JOIN_EPOCH or command.member_epoch == LEAVE_EPOCH
    if needs_member_id and _is_blank(command.member_id):
        raise _invalid("the member id is empty")
    if _is_blank(command.group_id):
        raise _invalid("the group id is empty")
    if command.instance_id is not None and _is_blank(command.instance_id):
        raise _invalid("the instance id is empty; leave it out for a dynamic member")
    if command.rack_id is not None and _is_blank(command.rack_id):
        raise _invalid("the rack id is empty; leave it out when there is none")


def _is_blank(text: str) -> bool:
    return not text.strip()


def _check_join(command: ConsumerGroupHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("a member that joins (epoch 0) must send its rebalance time-out")
    if command.owned is None or command.owned:
        raise _invalid("a member that joins (epoch 0) must send an empty list of owned partitions")
    if command.topic_names is None and command.topic_pattern is None:
        raise _invalid("a member that joins (epoch 0) must subscribe to topic names or to a pattern")


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)


SESSION: Final = "session"
REVOCATION: Final = "revocation"


class _Pair(NamedTuple):
    session: Deadline
    revocation: Deadline


class MemberDeadlines:
    """Not durable: after a restart every member has its full time again."""

    def __init__(self, group: Group, deadlines: Deadlines) -> None:
        self._group = group
        self._deadlines = deadlines
        self._pairs: dict[str, _Pair] = {}

    def __len__(self) -> int:
        """The count of members with deadlines."""
        return len(self._pairs)

    def arm_session(self, member_id: str, due_ms: int) -> None:
        self._deadlines.arm(self._pair(member_id).session, due_ms)

    def arm_revocation(self, member_id: str, due_ms: int) -> None:
        self._deadlines.arm(self._pair(member_id).revocation, due_ms)

    def forget(self, member_id: str) -> None:
        pair = self._pairs.pop(member_id, None)
        if pair is not None:
            pair.session.due_ms = pair.revocation.due_ms = None

    def forget_all(self) -> None:
        for member_id in list(self._pairs):
            self.forget(member_id)

    def _pair(self, member_id: str) -> _Pair:
        pair = self._pairs.get(member_id)
        if pair is None:
            session = Deadline(self._group, SESSION, member_id)
            pair = self._pairs[member_id] = _Pair(session, Deadline(self._group, REVOCATION, member_id))
        return pair


def describe(state: ConsumerGroupState, topics: TopicsImage, settings: GroupSettings) -> ConsumerGroupDescription:
    """Members by id.  Deleted topics are left out of assignments: their names are unknown."""
    return ConsumerGroupDescription(
        ErrorCode.NONE,
        state.group_id,
        None,
        state.name,
        state.group_epoch,
        state.assignment_epoch,
        preferred_name(state.assignor_counts, settings.consumer_assignors),
        [_describe_member(state, topics, member_id) for member_id in sorted(state.members)],
    )


def _describe_member(state: ConsumerGroupState, topics: TopicsImage, member_id: str) -> DescribedConsumer:
    metadata, current = state.members[member_id], state.current(member_id)
    return DescribedConsumer(
        member_id,
        metadata.instance_id,
        metadata.rack_id,
        current.member_epoch,
        metadata.client_id,
        metadata.client_host,
        metadata.topic_names,
        metadata.topic_pattern,
        _named(current.assigned, topics),
        _named(state.targets.get(member_id, {}), topics),
    )


def _named(assignment: Assignment, topics: TopicsImage) -> list[NamedTopicPartitions]:
    return [
        NamedTopicPartitions(topic_id, topics.by_id[topic_id].name, sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in topics.by_id
    ]


PROTOCOL_TYPE: Final = "consumer"
RETRY_MS: Final = 1_000


class ConsumerGroup:
    """`topics` returns the newest image and `times` the current settings: both are called at each heartbeat.

    `new_member_id` makes an id from a client's id, for members of v0.
    """

    kind: GroupKind = CONSUMER
    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        deadlines: Deadlines,
        topics: Callable[[], TopicsImage],
        patterns: SubscriptionPatterns,
        new_member_id: Callable[[str], str],
        times: Callable[[], ConsumerTimes],
        member_bytes: SharedBytes,
    ) -> None:
        self.group_id: Final = group_id
        self.history: Final = TransitionHistory(group_id)
        self.state: Final = ConsumerGroupState(group_id)
        self._settings = settings
        self._topics = topics
        self._patterns = patterns
        self._new_member_id = new_member_id
        self._times = times
        self._member_bytes = member_bytes
        self._held = SharedPart(member_bytes)
        self._deadlines = MemberDeadlines(self, deadlines)
        self._seen_topics: TopicsImage | None = None

    @property
    def state_name(self) -> str:
        return self.state.name

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def members_count(self) -> int:
        return len(self.state.members)

    @property
    def has_records(self) -> bool:
        return next(self.state.record_keys(), None) is not None

    @property
    def is_forgettable(self) -> bool:
        return not self.has_records

    def empty_since_ms(self) -> int | None:
        return None

    def read_among(self, topics: Collection[str]) -> Collection[str]:
        matched = frozenset().union(*(resolved.topic_names for resolved in self.state.patterns.values()))
        return {topic for topic in topics if topic in self.state.name_counts or topic in matched}

    def tombstones(self) -> Sequence[GroupRecord]:
        return [tombstone(key) for key in self.state.record_keys()]

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def fail_all(self, error: ErrorCode) -> None:
        """No request of a consumer group is ever parked."""
        self.stop()

    def suspend(self, error: ErrorCode) -> None:
        """No request of a consumer group is ever parked."""

    def resume(self, moment: Moment) -> None:
        self.on_loaded(moment)

    def stop(self) -> None:
        self._deadlines.forget_all()
        self._held.release()

    def replay(self, key: ConsumerRecordKey, value: bytes | None) -> None:
        """Apply one record of this group.  Raises `WireError` for damaged bytes."""
        if key.type is not ConsumerRecordType.MEMBER:
            self.state.replay(key, value)
            return
        before = self.state.members.get(key.part)
        self.state.replay(key, value)
        self._count(before, -1)
        self._count(self.state.members.get(key.part), 1)
        if value is None:
            self._deadlines.forget(key.part)

    def _count(self, member: MemberMetadata | None, sign: int) -> None:
        if member is not None:
            self._held.add(sign * held_bytes(member), network_of(member.client_host))

    def heartbeat(self, command: ConsumerGroupHeartbeat, moment: Moment) -> Decision:
        """A member joins, stays or leaves.  The reply is a `ConsumerGroupHeartbeatReply`; a refusal logs nothing."""
        try:
            check_request(command, self._settings)
            if self.is_empty and command.member_epoch != JOIN_EPOCH and not self.has_records:
                raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {self.group_id}")
            if command.member_epoch < JOIN_EPOCH:
                return self._leave(command, moment)
            return self._stay(command, moment)
        except RequestError as refusal:
            return Decision((), ConsumerGroupHeartbeatReply(refusal.code, str(refusal)))

    def _stay(self, command: ConsumerGroupHeartbeat, moment: Moment) -> Decision:
        member_id = command.member_id or self._new_member_id(command.client_id)
        owned = None if command.owned is None else from_partitions(command.owned)
        sender = admit(self.state, command, member_id, owned, self._settings.consumer_max_size)
        if self._is_settled(sender, command):
            self._arm_session(member_id, moment)
            return Decision((), self._reply(command, sender, sender.current))
        self._check_memory(sender, command)
        context = self._context(moment)._replace(sees_topic=command.sees_topic)
        decision = decide_heartbeat(self.state, context, command, sender, owned)
        records = decision.draft.records()
        if decision.group_epoch == self.state.group_epoch:
            self._seen_topics = self._topics()
        self._arm_session(member_id, moment)
        self._arm_revocation(sender, decision, moment)
        self._note(sender, decision, moment)
        return Decision(records, self._reply(command, sender, decision.current))

    def _check_memory(self, sender: Sender, command: ConsumerGroupHeartbeat) -> None:
        """A member whose metadata grows must find room for it in the memory of all groups."""
        known = None if sender.is_new and sender.replaces is None else sender.metadata
        more_bytes = held_bytes(merge(sender.metadata, command)) - held_bytes(known)
        if not self._held.has_room_for(more_bytes, network_of(command.client_host)):
            self._member_bytes.note_refused(self.group_id, command.client_host)
            text = "the members of this client or group use all the memory that they may; try again later"
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def _is_settled(self, sender: Sender, command: ConsumerGroupHeartbeat) -> bool:
        """Nothing has changed and nothing is pending: nearly every heartbeat, so it is checked first."""
        state = self.state
        return (
            sender.current.is_reconciled_to(state.assignment_epoch)
            and state.group_epoch == state.assignment_epoch
            and self._seen_topics is self._topics()
            and not sender.is_new
            and merge(sender.metadata, command) == sender.metadata
        )

    def _reply(
        self, command: ConsumerGroupHeartbeat, sender: Sender, current: CurrentAssignment
    ) -> ConsumerGroupHeartbeatReply:
        """The assignment is sent when it has changed, and to a member that may have missed one: it sends all fields, or
        its epoch is not the last one it was sent."""
        must_tell = (
            current.assigned != sender.current.assigned
            or command.member_epoch == JOIN_EPOCH
            or command.member_epoch != sender.current.member_epoch
            or _has_all_fields(command)
        )
        return ConsumerGroupHeartbeatReply(
            ErrorCode.NONE,
            None,
            sender.member_id,
            current.member_epoch,
            self._times().heartbeat_interval_ms,
            to_partitions(current.assigned) if must_tell else None,
        )

    def _context(self, moment: Moment) -> HeartbeatContext:
        topics = self._topics()
        return HeartbeatContext(self._settings, topics, self._patterns, moment.wall_ms, topics is self._seen_topics)

    def _arm_session(self, member_id: str, moment: Moment) -> None:
        self._deadlines.arm_session(member_id, moment.monotonic_ms + self._times().session_timeout_ms)

    def _arm_revocation(self, sender: Sender, decision: HeartbeatDecision, moment: Moment) -> None:
        # It is not disarmed: `on_deadline` checks whether the member still has something to give up.
        must_revoke = decision.current.state is MemberState.UNREVOKED_PARTITIONS
        if must_revoke and decision.current is not sender.current:
            due_ms = moment.monotonic_ms + decision.metadata.rebalance_timeout_ms
            self._deadlines.arm_revocation(sender.member_id, due_ms)

    def _note(self, sender: Sender, decision: HeartbeatDecision, moment: Moment) -> None:
        if sender.is_new:
            self.history.add(moment.wall_ms, "member.joined", member=sender.member_id, replaces=sender.replaces)
        if decision.group_epoch != self.state.group_epoch:
            self.history.add(moment.wall_ms, "epoch.raised", group_epoch=decision.group_epoch)
        if decision.current is not sender.current:
            current = decision.current
            facts = {"member": sender.member_id, "member_epoch": current.member_epoch, "state": current.state.name}
            self.history.add(moment.wall_ms, "member.moved", **facts)

    def _leave(self, command: ConsumerGroupHeartbeat, moment: Moment) -> Decision:
        member_id = command.member_id
        if command.instance_id is not None:
            holder_id = self.state.static_ids.get(command.instance_id)
            if holder_id is None:
                raise unknown_instance(command.instance_id)
            if holder_id != member_id:
                raise fenced_instance(command.instance_id, holder_id)
        elif member_id not in self.state.members:
            raise unknown_member(self.state, member_id)
        reply = ConsumerGroupHeartbeatReply(ErrorCode.NONE, None, member_id, command.member_epoch)
        if command.member_epoch == LEAVE_STATIC_EPOCH:
            self.history.add(moment.wall_ms, "member.left_for_a_while", member=member_id)
            return Decision(self._pause(member_id).records(), reply)
        self.history.add(moment.wall_ms, "member.left", member=member_id)
        return Decision(put_departure(self.state, self._context(moment), [member_id]).records(), reply)

    def _pause(self, member_id: str) -> RecordDraft:
        """A static member leaves and will return: its client has closed, so it no longer holds what it had to
        revoke."""
        draft = RecordDraft(self.group_id)
        left = self.state.current(member_id)._replace(member_epoch=LEAVE_STATIC_EPOCH, pending_revocation={})
        draft.put_current(member_id, left)
        return draft

    def on_loaded(self, moment: Moment) -> None:
        for member_id, metadata in self.state.members.items():
            self._arm_session(member_id, moment)
            if self.state.current(member_id).state is MemberState.UNREVOKED_PARTITIONS:
                self._deadlines.arm_revocation(member_id, moment.monotonic_ms + metadata.rebalance_timeout_ms)

    def on_deadline(self, deadline: Deadline, moment: Moment) -> Decision | None:
        """A member that was silent, or did not revoke in time, is removed."""
        member_id = deadline.member_id
        if member_id not in self.state.members:
            # The log refused its first record.
            self._deadlines.forget(member_id)
            return None
        must_revoke = self.state.current(member_id).state is MemberState.UNREVOKED_PARTITIONS
        if deadline.kind == REVOCATION and not must_revoke:
            return None
        self.history.add(moment.wall_ms, "member.fenced", member=member_id, deadline=deadline.kind)
        return Decision(put_departure(self.state, self._context(moment), [member_id]).records(), None)

    def on_append_failed(self, deadline: Deadline, moment: Moment) -> None:
        due_ms = moment.monotonic_ms + RETRY_MS
        if deadline.kind == REVOCATION:
            self._deadlines.arm_revocation(deadline.member_id, due_ms)
        else:
            self._deadlines.arm_session(deadline.member_id, due_ms)

    def check_commit(self, command: CommitOffsets, moment: Moment) -> ErrorCode:
        """Any client may commit for an empty group; a member only at its exact epoch.  A commit does not extend the
        session."""
        epoch, is_transactional = command.generation_or_epoch, command.producer is not None
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        if is_transactional and epoch < 0 and not command.member_id and command.instance_id is None:
            # The first versions have no fields for the member: its producer is fenced.
            return ErrorCode.NONE
        if command.member_id not in self.state.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and not command.knows_stale_epoch:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch != self.state.current(command.member_id).member_epoch:
            return ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        if member_id not in self.state.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch != self.state.current(member_id).member_epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def describe(self) -> ConsumerGroupDescription:
        return describe(self.state, self._topics(), self._settings)


def _has_all_fields(command: ConsumerGroupHeartbeat) -> bool:
    """Whether the member sent every field, as it does when it does not know the broker's state."""
    has_subscription = command.topic_names is not None or command.topic_pattern is not None
    return command.rebalance_timeout_ms != -1 and has_subscription and command.owned is not None
