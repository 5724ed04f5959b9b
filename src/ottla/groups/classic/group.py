"""A group of Kafka's classic protocol, or one that only commits offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from ottla.groups.classic.member import Member
from ottla.groups.classic.rebalance import JOIN, PENDING, SESSION, SYNC, GroupState, Rebalance
from ottla.groups.commands import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from ottla.groups.deadlines import Deadline
from ottla.groups.group import CLASSIC, GroupKind, ShardServices
from ottla.groups.group_log import Decision, GroupRecord
from ottla.groups.group_metadata import GroupMetadata, group_key
from ottla.groups.replies import (
    DescribedGroup,
    JoinReply,
    LeaveReply,
    LeftMember,
    SyncReply,
)
from ottla.groups.shared_bytes import BARE_MEMBER_BYTES, bytes_of_protocols, network_of
from ottla.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla.model.error_code import ErrorCode
from ottla.observe.transition_history import TransitionHistory
from ottla.runtime.clock import Moment

Reply = Callable[[JoinReply], None]


def join(rebalance: Rebalance, command: JoinGroup, reply: Reply, moment: Moment) -> None:
    """Decide one JoinGroup; it is answered now, or when the rebalance that it waits for ends."""
    known_id = command.member_id or rebalance.roster.static_id(command.instance_id) or ""
    if not _has_room_for(rebalance, known_id):
        _refuse_with(rebalance, known_id, moment)
        refuse(rebalance, reply, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif not _supports(rebalance, command):
        refuse(rebalance, reply, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id)
    elif not _has_memory_for(rebalance, known_id, command):
        rebalance.services.member_bytes.note_refused(command.group_id, command.client_host)
        refuse(rebalance, reply, ErrorCode.COORDINATOR_NOT_AVAILABLE, command.member_id)
    elif command.member_id:
        _join_known(rebalance, command, reply, moment)
    elif command.instance_id is not None:
        _join_static(rebalance, command, command.instance_id, reply, moment)
    else:
        _join_dynamic(rebalance, command, reply, moment)


def refuse(rebalance: Rebalance, reply: Reply, error: ErrorCode, member_id: str) -> None:
    rebalance.services.answer(reply, JoinReply(error, member_id))


def _has_room_for(rebalance: Rebalance, member_id: str) -> bool:
    """While members join, only joined ones count: a limit that was lowered keeps the first to join."""
    roster, max_size = rebalance.roster, rebalance.services.settings.max_size
    member = roster.members.get(member_id)
    if rebalance.state is GroupState.EMPTY:
        return True
    if rebalance.state is GroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_reply is not None) or roster.joined_count < max_size
    return member is not None or len(roster) < max_size


def _has_memory_for(rebalance: Rebalance, member_id: str, command: JoinGroup) -> bool:
    """Of all groups, and of the client's network.  A member that sends no more than before is always admitted."""
    member = rebalance.roster.members.get(member_id)
    before_bytes = -BARE_MEMBER_BYTES if member is None else bytes_of_protocols(member.protocols)
    more_bytes = bytes_of_protocols(command.protocols) - before_bytes
    return rebalance.roster.held.has_room_for(more_bytes, network_of(command.client_host))


def _refuse_with(rebalance: Rebalance, member_id: str, moment: Moment) -> None:
    """Refuse a join; a former member that rejoins too late for a full group is removed."""
    rebalance.roster.forget_pending(member_id)
    if member_id in rebalance.roster.members:
        rebalance.remove(member_id)
    rebalance.complete_if_all_joined(moment)


def _supports(rebalance: Rebalance, command: JoinGroup) -> bool:
    if rebalance.state is GroupState.EMPTY:
        return bool(command.protocol_type and command.protocols)
    if rebalance.roster.members and rebalance.protocol_type != command.protocol_type:
        return False
    return bool(command.protocol_type) and rebalance.roster.supports(command.protocols)


def _join_dynamic(rebalance: Rebalance, command: JoinGroup, reply: Reply, moment: Moment) -> None:
    member_id = rebalance.services.new_member_id(command.client_id)
    if command.requires_known_member_id:
        rebalance.expect_pending(member_id, command.session_timeout_ms, moment)
        refuse(rebalance, reply, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    else:
        rebalance.add(member_id, command, reply, moment)


def _join_static(rebalance: Rebalance, command: JoinGroup, instance_id: str, reply: Reply, moment: Moment) -> None:
    """A static member without an id: a new one, or one whose restarted process replaces it."""
    member_id = rebalance.services.new_member_id(instance_id)
    old_id = rebalance.roster.static_id(instance_id)
    if old_id is None:
        rebalance.add(member_id, command, reply, moment)
        return
    old = rebalance.roster.members[old_id]
    if rebalance.state is GroupState.STABLE:
        chosen = rebalance.roster.choose_protocol(old, command.protocols)
        if chosen == rebalance.protocol_name:
            _return_without_rebalance(rebalance, old, member_id, command, reply, moment)
            return
    _replace_static(rebalance, old, member_id, command, reply, moment)


def _return_without_rebalance(
    rebalance: Rebalance, old: Member, member_id: str, command: JoinGroup, reply: Reply, moment: Moment
) -> None:
    """No rebalance: the generation is logged with the new id, which has the old one's assignment (KIP-345).

    A returning leader would compute an assignment that no member awaits.  So the reply says to skip it (KIP-814), or,
    in versions without that field, names another leader: its own old id.
    """
    old_leader_id = rebalance.roster.leader_id
    error = rebalance.replace_static(old, member_id, command, moment)
    if error is not ErrorCode.NONE:
        refuse(rebalance, reply, error, "")
        return
    member = rebalance.roster.members[member_id]
    rebalance.roster.set_protocols(member, tuple(command.protocols))
    rebalance.start_session(member, moment)
    if command.may_skip_assignment:
        leads = rebalance.roster.leader_id == member_id
        answer = rebalance.joined(member, skips_assignment=leads)
    else:
        answer = rebalance.joined(member, leader_id=old_leader_id)
    rebalance.services.answer(reply, answer)


def _replace_static(
    rebalance: Rebalance, old: Member, member_id: str, command: JoinGroup, reply: Reply, moment: Moment
) -> None:
    """The new id joins in place of the old one while the others join too; requests of the old one are fenced."""
    roster = rebalance.roster
    led = roster.leader_id == old.member_id
    rebalance.remove(old.member_id, ErrorCode.FENCED_INSTANCE_ID)
    rebalance.enter(member_id, command, reply, moment)
    if led:
        roster.leader_id = member_id
    rebalance.prepare_or_complete(f"{member_id} takes the place of {old.member_id}", moment)


def _join_known(rebalance: Rebalance, command: JoinGroup, reply: Reply, moment: Moment) -> None:
    roster, member_id = rebalance.roster, command.member_id
    if member_id in roster.pending and command.instance_id is None:
        rebalance.add(member_id, command, reply, moment)
        return
    error = roster.check(member_id, command.instance_id)
    if error is not ErrorCode.NONE:
        refuse(rebalance, reply, error, member_id)
        return
    member = roster.members[member_id]
    if _causes_rebalance(rebalance, member, command):
        rebalance.rejoin(member, command, reply)
        rebalance.prepare_or_complete(f"{member_id} rejoins: {command.reason}", moment)
    else:
        rebalance.start_session(member, moment)
        rebalance.services.answer(reply, rebalance.joined(member))


def _causes_rebalance(rebalance: Rebalance, member: Member, command: JoinGroup) -> bool:
    """Whether the join of a member starts a rebalance or is part of one.

    It does not when the member repeats its metadata, for then it has only missed the answer; but the leader of a stable
    group joins to start a rebalance, for example when its topics have changed.
    """
    if rebalance.state is GroupState.PREPARING_REBALANCE or not member.matches(command.protocols):
        return True
    return rebalance.state is GroupState.STABLE and rebalance.roster.leader_id == member.member_id


class ClassicGroup:
    """Satisfies `Group`, and handles the four requests of the classic protocol."""

    def __init__(self, group_id: str, services: ShardServices) -> None:
        self._group_id: Final = group_id
        self._history: TransitionHistory | None = None
        self.rebalance: Final = Rebalance(self, services)

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def history(self) -> TransitionHistory:
        # Made with the first transition: most groups of a large broker only commit offsets.
        if self._history is None:
            self._history = TransitionHistory(f"group {self._group_id}")
        return self._history

    @property
    def kind(self) -> GroupKind:
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.rebalance.state.value

    @property
    def protocol_type(self) -> str:
        return self.rebalance.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.rebalance.state is GroupState.EMPTY

    @property
    def members_count(self) -> int:
        return len(self.rebalance.roster)

    @property
    def has_records(self) -> bool:
        return self.rebalance.is_logged

    @property
    def is_forgettable(self) -> bool:
        return self.is_empty and not self.has_records and not self.rebalance.roster.pending

    def empty_since_ms(self) -> int | None:
        known = self.is_empty and self.protocol_type and self.rebalance.state_since_ms >= 0
        return self.rebalance.state_since_ms if known else None

    def join(self, command: JoinGroup, reply: Callable[[JoinReply], None], moment: Moment) -> None:
        join(self.rebalance, command, reply, moment)

    def abandon_join(self, waiter: object, moment: Moment) -> bool:
        """The connection `waiter` closed; whether that removed a member."""
        return self.rebalance.abandon_join(waiter, moment)

    def sync(self, command: SyncGroup, reply: Callable[[SyncReply], None], moment: Moment) -> None:
        rebalance = self.rebalance
        error = self._check_sync(command)
        if error is not ErrorCode.NONE:
            rebalance.services.answer(reply, SyncReply(error))
            return
        member = rebalance.roster.members[command.member_id]
        if rebalance.state is GroupState.STABLE:
            member.has_synced = True
            rebalance.start_session(member, moment)
            rebalance.services.answer(reply, rebalance.synced(member))
            return
        rebalance.wait_for_assignment(member, reply)
        if rebalance.roster.leader_id == member.member_id:
            rebalance.assign(dict(command.assignments), moment)

    def _check_sync(self, command: SyncGroup) -> ErrorCode:
        rebalance = self.rebalance
        error = rebalance.roster.check(command.member_id, command.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if command.generation != rebalance.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if command.protocol_type not in (None, rebalance.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if rebalance.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if command.protocol_name not in (None, rebalance.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def heartbeat(self, command: Heartbeat, moment: Moment) -> ErrorCode:
        """Constant time: the session's deadline is moved, and nothing is queued."""
        rebalance = self.rebalance
        member_id, instance_id = command.member_id, command.instance_id
        member = rebalance.roster.members.get(member_id)
        if member is None or instance_id is not None:
            error = rebalance.roster.check(member_id, instance_id)
            if member is None or error is not ErrorCode.NONE:
                return error
        if command.generation != rebalance.generation:
            return ErrorCode.ILLEGAL_GENERATION
        rebalance.start_session(member, moment)
        if rebalance.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, command: LeaveGroup, moment: Moment) -> LeaveReply:
        rebalance = self.rebalance
        members_before = len(rebalance.roster)
        left = tuple(self._leave(member, moment) for member in command.members)
        if len(rebalance.roster) < members_before:
            self._continue_without(f"{members_before - len(rebalance.roster)} left", moment)
        else:
            # Members may have waited for an issued id that is now returned.
            rebalance.complete_if_all_joined(moment)
        return LeaveReply(ErrorCode.NONE, left)

    def _leave(self, leaving: LeavingMember, moment: Moment) -> LeftMember:
        roster = self.rebalance.roster
        member_id = leaving.member_id or roster.static_id(leaving.instance_id) or ""
        if roster.forget_pending(member_id):
            return LeftMember(leaving.member_id, leaving.instance_id, ErrorCode.NONE)
        error = roster.check(member_id, leaving.instance_id)
        if error is ErrorCode.NONE:
            self.rebalance.remove(member_id)
            self.history.add(moment.wall_ms, "left", member=member_id, reason=leaving.reason)
        return LeftMember(leaving.member_id, leaving.instance_id, error)

    def check_commit(self, command: CommitOffsets, moment: Moment) -> ErrorCode:
        rebalance, generation = self.rebalance, command.generation_or_epoch
        if generation < 0 and rebalance.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not command.member_id and command.instance_id is None:
            # The first versions of a commit in a transaction have no fields for the member: its producer is fenced.
            return ErrorCode.UNKNOWN_MEMBER_ID if command.producer is None else ErrorCode.NONE
        error = rebalance.roster.check(command.member_id, command.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != rebalance.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if command.producer is not None:
            # It commits what it has processed, and does not show that the member polls.
            return ErrorCode.NONE
        if rebalance.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        rebalance.start_session(rebalance.roster.members[command.member_id], moment)
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        if self.is_empty or self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def read_among(self, topics: Collection[str]) -> Collection[str]:
        """A member whose subscription cannot be read may be reading any topic.  Each subscription is parsed once."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ()
        rebalance = self.rebalance
        read: set[str] = set()
        for member in rebalance.roster.members.values():
            subscribed = None
            if rebalance.protocol_name is not None:
                subscribed = subscribed_topics(member.metadata(rebalance.protocol_name))
            if subscribed is None:
                return topics
            read.update(subscribed.intersection(topics))
        return read

    def apply(self, found: GroupMetadata) -> None:
        self.rebalance.apply(found)

    def tombstones(self) -> Sequence[GroupRecord]:
        return [GroupRecord(group_key(self._group_id), None)]

    def on_loaded(self, moment: Moment) -> None:
        rebalance = self.rebalance
        for member in rebalance.roster.members.values():
            rebalance.start_session(member, moment)
        max_size = rebalance.services.settings.max_size
        if rebalance.state is GroupState.STABLE and len(rebalance.roster) > max_size:
            rebalance.prepare(f"{len(rebalance.roster)} members are more than {max_size}", moment)

    def on_deadline(self, deadline: Deadline, moment: Moment) -> Decision | None:
        if self.rebalance.state is GroupState.DEAD:
            return None
        if deadline.kind == SESSION:
            self._on_session_end(deadline.member_id, moment)
        elif deadline.kind == PENDING:
            self.rebalance.roster.forget_pending(deadline.member_id)
            self.rebalance.complete_if_all_joined(moment)
        elif deadline.kind == JOIN:
            self.rebalance.on_join_deadline(moment)
        else:
            assert deadline.kind == SYNC
            self.rebalance.on_sync_deadline(moment)
        return None

    def _on_session_end(self, member_id: str, moment: Moment) -> None:
        rebalance = self.rebalance
        member = rebalance.roster.members[member_id]
        assert not member.is_waiting or member.is_new
        rebalance.remove(member_id)
        self.history.add(moment.wall_ms, "session ended", member=member_id)
        self._continue_without(f"the session of {member_id} ended", moment)

    def _continue_without(self, reason: str, moment: Moment) -> None:
        rebalance = self.rebalance
        if rebalance.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            rebalance.prepare(reason, moment)
        else:
            rebalance.complete_if_all_joined(moment)

    def on_append_failed(self, deadline: Deadline, moment: Moment) -> None:
        raise AssertionError("a classic group writes through its shard services")

    def fail_all(self, error: ErrorCode) -> None:
        for member in self.rebalance.roster.members.values():
            if (join_reply := self.rebalance.roster.take_join(member)) is not None:
                join_reply(JoinReply(error, member.member_id))
            if member.sync_reply is not None:
                sync_reply, member.sync_reply = member.sync_reply, None
                sync_reply(SyncReply(error))
        self.rebalance.stop()

    def suspend(self, error: ErrorCode) -> None:
        """A dynamic member whose first join is refused is removed: it may join again without the id that it did not
        receive, and the others would wait for both.
        """
        roster = self.rebalance.roster
        for member in list(roster.members.values()):
            if (join_reply := roster.take_join(member)) is not None:
                if member.is_new and member.instance_id is None:
                    roster.remove(member.member_id)
                join_reply(JoinReply(error, member.member_id))
            if member.sync_reply is not None:
                sync_reply, member.sync_reply = member.sync_reply, None
                # Its assignment is not known to it: it syncs again, before the deadline.
                member.has_synced = False
                sync_reply(SyncReply(error))

    def resume(self, moment: Moment) -> None:
        self.rebalance.resume(moment)

    def stop(self) -> None:
        """The group is removed from its shard."""
        self.rebalance.stop()

    def describe(self) -> DescribedGroup:
        rebalance = self.rebalance
        is_stable = rebalance.state is GroupState.STABLE
        members = rebalance.roster.members.values()
        return DescribedGroup(
            ErrorCode.NONE,
            self._group_id,
            self.state_name,
            self.protocol_type,
            (rebalance.protocol_name or "") if is_stable else "",
            [member.describe(rebalance.protocol_name, is_stable=is_stable) for member in members],
        )
