"""The rebalance of a classic group: from the first join that triggers it to the assignment in the log.

Members and their parked requests live in memory only.  Durable is the generation with its assignment (`GroupMetadata`):
it is written when the leader syncs, when the group has become empty, and when a static member returns under a new id.
`apply` applies it, live as at start-up.  A crash before the leader's sync falls back to the generation before; no
member has seen an assignment of the lost one, since assignments are sent only when they are stable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from ottla.groups.classic.member import Member, Roster, newcomer
from ottla.groups.commands import JoinGroup, JoinProtocol
from ottla.groups.deadlines import Deadline
from ottla.groups.group import Group, ShardServices
from ottla.groups.group_metadata import GroupMetadata, StoredMember, group_record
from ottla.groups.refusals import code_for_member
from ottla.groups.replies import JoinedMember, JoinReply, SyncReply
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.primitives import INT32_MAX
from ottla.runtime.clock import Moment


class GroupState(Enum):
    """Every state but EMPTY and DEAD has a deadline that ends it or checks its members: no group gets stuck.

    EMPTY                  no members; offsets may expire
    PREPARING_REBALANCE    members join; ends when all have, or at the rebalance time-out
    COMPLETING_REBALANCE   the generation exists, its assignment does not; members that do not sync in time are removed
    STABLE                 the assignment is logged; each member has a session
    DEAD                   removed from its shard
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_NEXT: Final[Mapping[GroupState, frozenset[GroupState]]] = MappingProxyType(
    {
        GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
        GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
        GroupState.COMPLETING_REBALANCE: frozenset(
            {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
        ),
        GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
        GroupState.DEAD: frozenset(),
    }
)


SESSION: Final = "session"
PENDING: Final = "pending"
JOIN: Final = "join"
SYNC: Final = "sync"

# Kafka's own: a member that never received its id cannot heartbeat, and its connection may be closed.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
# The shortest time between two attempts of a rebalance without joined members, and the shortest time for members to
# sync, for any time-outs that members request.
SHORTEST_WAIT_MS: Final = 1_000


class Rebalance:
    """State, generation and members of one group; `owner` is the group that deadlines call."""

    def __init__(self, owner: Group, services: ShardServices) -> None:
        self.owner: Final = owner
        self.services: Final = services
        self.roster: Final = Roster(services.member_bytes)
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        # Wall time; -1 when not known.
        self.state_since_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        # A generation was logged and not deleted.
        self.is_logged = False
        self._join_deadline: Final = Deadline(owner, JOIN)
        self._sync_deadline: Final = Deadline(owner, SYNC)
        # Of the first rebalance after EMPTY: it waits longer while members arrive.
        self._initial_left_ms = 0
        self._member_arrived = False

    def add(self, member_id: str, command: JoinGroup, reply: Callable[[JoinReply], None], moment: Moment) -> None:
        """Add a new member; its join is parked until the rebalance that this starts or joins has ended."""
        self.enter(member_id, command, reply, moment)
        if self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY:
            self._member_arrived = True
        self.prepare_or_complete(f"{member_id} joins", moment)

    def enter(self, member_id: str, command: JoinGroup, reply: Callable[[JoinReply], None], moment: Moment) -> None:
        """Add a member without regard to the others."""
        roster = self.roster
        if not roster.members:
            self.protocol_type = command.protocol_type
        member = Member(
            newcomer(member_id, command), tuple(command.protocols), Deadline(self.owner, SESSION, member_id)
        )
        member.is_new = True
        roster.add(member)
        roster.park_join(member, reply, command.waiter)
        self.services.deadlines.arm(member.session, moment.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def rejoin(self, member: Member, command: JoinGroup, reply: Callable[[JoinReply], None]) -> None:
        """Park a member's join with its new metadata.  It supersedes an older join of the member."""
        self.answer_join(member, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.roster.set_protocols(member, tuple(command.protocols))
        member.rebalance_timeout_ms = command.rebalance_timeout_ms
        member.session_timeout_ms = command.session_timeout_ms
        self.roster.park_join(member, reply, command.waiter)
        if not member.is_new:
            member.session.due_ms = None

    def remove(self, member_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member and answer its parked requests; the caller handles the consequences for the others."""
        member = self.roster.members[member_id]
        self.answer_join(member, JoinReply(error))
        self._answer_sync(member, SyncReply(error))
        self.roster.remove(member_id)

    def abandon_join(self, waiter: object, moment: Moment) -> bool:
        """Remove the member whose first join waits for `waiter`, a connection that closed; False: there is none.

        No generation has it, and nothing can reach it.  A static member is kept: it may return under its instance id.
        """
        member = self.roster.new_member_of(waiter)
        if member is None or member.instance_id is not None:
            return False
        self.remove(member.member_id)
        self.owner.history.add(moment.wall_ms, "connection closed before the join completed", member=member.member_id)
        self.complete_if_all_joined(moment)
        return True

    def start_session(self, member: Member, moment: Moment) -> None:
        """The member is alive.  One with a parked request is not expected to send anything."""
        if member.join_reply is None and member.sync_reply is None:
            self.services.deadlines.arm(member.session, moment.monotonic_ms + member.session_timeout_ms)

    def expect_pending(self, member_id: str, session_timeout_ms: int, moment: Moment) -> None:
        deadline = Deadline(self.owner, PENDING, member_id)
        self.roster.add_pending(member_id, deadline)
        self.services.issued_ids.add(deadline, session_timeout_ms, moment)

    def prepare_or_complete(self, reason: str, moment: Moment) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(moment)
        else:
            self.prepare(reason, moment)

    def prepare(self, reason: str, moment: Moment) -> None:
        """Start to rebalance: all members must rejoin within the longest rebalance time-out."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.roster.members.values():
                self._end_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS), moment)
        self._sync_deadline.due_ms = None
        is_initial = self.state is GroupState.EMPTY
        self._become(GroupState.PREPARING_REBALANCE, moment, reason)
        timeout_ms = max(self.roster.rebalance_timeout_ms, 0)
        if not is_initial:
            self._arm(self._join_deadline, timeout_ms, moment)
            self.complete_if_all_joined(moment)
            return
        delay_ms = self.services.settings.initial_rebalance_delay_ms
        self._member_arrived = False
        self._initial_left_ms = max(timeout_ms - delay_ms, 0)
        if delay_ms > 0:
            self._arm(self._join_deadline, delay_ms, moment)
        else:
            self.complete_join(moment)

    def complete_if_all_joined(self, moment: Moment) -> None:
        """The first rebalance after EMPTY ends by its deadline only: more members may arrive."""
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self.previous_state is not GroupState.EMPTY
            and self.roster.has_all_joined
        ):
            self.complete_join(moment)

    def on_join_deadline(self, moment: Moment) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self.previous_state is GroupState.EMPTY and self._member_arrived and self._initial_left_ms > 0:
            self._member_arrived = False
            delay_ms = min(self.services.settings.initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= delay_ms
            self._arm(self._join_deadline, delay_ms, moment)
            return
        self.complete_join(moment)

    def complete_join(self, moment: Moment) -> None:
        """Members that have not joined are removed, except static ones; the others form the next generation."""
        self._join_deadline.due_ms = None
        roster = self.roster
        for member in [m for m in roster.members.values() if m.join_reply is None and m.instance_id is None]:
            self.remove(member.member_id)
        if not roster.members:
            self._become_empty(moment)
        elif not roster.elect_joined_leader():
            # Absent static members: the wait ends with their sessions or their return.
            self._arm(self._join_deadline, max(roster.rebalance_timeout_ms, SHORTEST_WAIT_MS), moment)
        else:
            self._begin_generation(moment)

    def _begin_generation(self, moment: Moment) -> None:
        self.generation = next_generation(self.generation)
        self.protocol_name = self.roster.choose_protocol()
        self._become(GroupState.COMPLETING_REBALANCE, moment, f"{len(self.roster)} members")
        for member in self.roster.members.values():
            member.has_synced = False
            if member.join_reply is not None:
                self.answer_join(member, self.joined(member))
                member.is_new = False
                self.start_session(member, moment)
        self._arm(self._sync_deadline, max(self.roster.rebalance_timeout_ms, SHORTEST_WAIT_MS), moment)

    def _become_empty(self, moment: Moment) -> None:
        """Log that the group is empty, unless it never had a generation.

        When the log refuses, the group is empty all the same: after a crash the generation before would be loaded, and
        its absent members would time out.
        """
        self._become(GroupState.EMPTY, moment, "no members")
        self.protocol_name = None
        if self.generation == 0:
            self.protocol_type = None
            return
        self.generation = next_generation(self.generation)
        empty = GroupMetadata(self.protocol_type or "", self.generation, None, None, moment.wall_ms, ())
        if (error := self.write(empty, moment)) is not ErrorCode.NONE:
            self.owner.history.add(moment.wall_ms, "empty generation not logged", error=error.name)

    def joined(self, member: Member, *, leader_id: str | None = None, skips_assignment: bool = False) -> JoinReply:
        """The reply to a member of this generation; the leader's lists all members."""
        shown_leader_id = leader_id or self.roster.leader_id or ""
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            shown_leader_id,
            skips_assignment,
            self._members_for() if shown_leader_id == member.member_id else (),
        )

    def _members_for(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.roster.members.values()
        )

    def answer_join(self, member: Member, value: JoinReply) -> None:
        reply = self.roster.take_join(member)
        if reply is not None:
            self.services.answer(reply, value)

    def wait_for_assignment(self, member: Member, reply: Callable[[SyncReply], None]) -> None:
        assert self.state is GroupState.COMPLETING_REBALANCE
        self._answer_sync(member, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply
        member.has_synced = True
        member.session.due_ms = None

    def assign(self, assignments: Mapping[str, bytes], moment: Moment) -> None:
        """The leader has sent the assignment: log the generation, and answer every parked sync with its part."""
        assert self.state is GroupState.COMPLETING_REBALANCE
        members = tuple(
            member.stored(self.protocol_name, assignments.get(member.member_id, b""))
            for member in self.roster.members.values()
        )
        error = self._log_assigned(members, moment)
        if error is ErrorCode.NONE:
            self.owner.history.add(moment.wall_ms, "assigned", generation=self.generation)
        for member in self.roster.members.values():
            answer = self.synced(member) if error is ErrorCode.NONE else SyncReply(error)
            self._end_sync(member, answer, moment)
        # A disk that fails during the write stops the whole shard, and this group.
        if error is not ErrorCode.NONE and not self.is_stopped:
            self.prepare(f"the assignment could not be logged: {error.name}", moment)

    def _log_assigned(self, members: tuple[StoredMember, ...], moment: Moment) -> ErrorCode:
        before = self.roster.members.values()
        more_bytes = sum(len(member.assignment) for member in members) - sum(len(one.assignment) for one in before)
        # The leader sends all of them, for members of all networks.
        leader = self.roster.members[self.roster.leader_id or ""]
        if not self.roster.held.has_room_for(more_bytes, leader.network):
            self.services.member_bytes.note_refused(self.owner.group_id, leader.client_host)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.write(self._generation_with(members, moment), moment)

    def on_sync_deadline(self, moment: Moment) -> None:
        """Members that have not synced are removed, and the others rebalance again."""
        if self.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            return
        silent = [member.member_id for member in self.roster.members.values() if not member.has_synced]
        for member_id in silent:
            self.remove(member_id)
        if silent:
            self.prepare(f"{len(silent)} members did not sync", moment)

    def synced(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _end_sync(self, member: Member, value: SyncReply, moment: Moment) -> None:
        if member.sync_reply is not None:
            self._answer_sync(member, value)
            self.start_session(member, moment)

    def _answer_sync(self, member: Member, value: SyncReply) -> None:
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            self.services.answer(reply, value)

    def write(self, found: GroupMetadata, moment: Moment) -> ErrorCode:
        try:
            record = group_record(self.owner.group_id, found)
        except OttlaError as error:
            self.owner.history.add(moment.wall_ms, "generation does not fit a record", problem=str(error))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return code_for_member(self.services.write([record], moment))

    def replace_static(self, old: Member, member_id: str, command: JoinGroup, moment: Moment) -> ErrorCode:
        """Log the stable generation with `old` under a new id; `apply` then knows the new member and fences the old."""
        replaced = old.stored(self.protocol_name, old.assignment)._replace(
            member_id=member_id,
            client_id=command.client_id,
            client_host=command.client_host,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            subscription=next((m for name, m in command.protocols if name == self.protocol_name), b""),
        )
        others = (m for m in self.roster.members.values() if m is not old)
        members = (*(m.stored(self.protocol_name, m.assignment) for m in others), replaced)
        leader_id = member_id if self.roster.leader_id == old.member_id else self.roster.leader_id
        found = self._generation_with(members, moment)._replace(leader_id=leader_id, state_since_ms=self.state_since_ms)
        return self.write(found, moment)

    def _generation_with(self, members: tuple[StoredMember, ...], moment: Moment) -> GroupMetadata:
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.roster.leader_id,
            moment.wall_ms,
            members,
        )

    def apply(self, found: GroupMetadata) -> None:
        """Apply a logged generation.  Present members keep their sessions, requests and protocols."""
        roster = self.roster
        staying = {stored.member_id for stored in found.members}
        for member_id in [member_id for member_id in roster.members if member_id not in staying]:
            self.remove(member_id, ErrorCode.FENCED_INSTANCE_ID)
        for stored in found.members:
            member = roster.members.get(stored.member_id)
            chosen = JoinProtocol(found.protocol_name or "", stored.subscription)
            if member is None:
                roster.add(Member(stored, (chosen,), Deadline(self.owner, SESSION, stored.member_id)))
                continue
            roster.take_over(member, stored)
            if chosen not in member.protocols:
                # At start-up the record is all that is known of it.  Live, it has sent this and more.
                roster.set_protocols(member, (chosen,))
        roster.leader_id = found.leader_id if found.leader_id in staying else next(iter(roster.members), None)
        self.generation = found.generation
        self.protocol_type = found.protocol_type or None
        self.protocol_name = found.protocol_name
        # Not by `_become`: at start-up any generation may follow any other.
        self.previous_state = self.state
        self.state = GroupState.STABLE if found.members else GroupState.EMPTY
        self.state_since_ms = found.state_since_ms
        self.is_logged = True

    def assert_sound(self) -> None:
        """The invariants between any two commands: every state has its deadline, so no group gets stuck."""
        members = self.roster.members.values()
        self.roster.assert_sound()
        assert bool(members) or self.state in {GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
        assert self.state is not GroupState.EMPTY or not members
        if self.state is GroupState.PREPARING_REBALANCE:
            assert self._join_deadline.due_ms is not None
        if self.state is GroupState.COMPLETING_REBALANCE:
            assert self._sync_deadline.due_ms is not None
        for member in members:
            assert member.join_reply is None or self.state is GroupState.PREPARING_REBALANCE
            assert member.sync_reply is None or self.state is GroupState.COMPLETING_REBALANCE
            assert member.session.due_ms is not None or member.is_waiting

    @property
    def is_stopped(self) -> bool:
        return self.state is GroupState.DEAD

    def resume(self, moment: Moment) -> None:
        """All members were refused for a while: each session, and the present phase of the rebalance, restarts."""
        for member in self.roster.members.values():
            if member.is_new:
                self.services.deadlines.arm(member.session, moment.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
            else:
                self.start_session(member, moment)
        longest_ms = max(self.roster.rebalance_timeout_ms, SHORTEST_WAIT_MS)
        if self._join_deadline.due_ms is not None:
            is_initial = self.previous_state is GroupState.EMPTY
            delay_ms = self.services.settings.initial_rebalance_delay_ms if is_initial else longest_ms
            self._arm(self._join_deadline, delay_ms, moment)
        if self._sync_deadline.due_ms is not None:
            self._arm(self._sync_deadline, longest_ms, moment)

    def stop(self) -> None:
        """The group is removed: disarm its deadlines."""
        self._become_dead()
        for deadline in (self._join_deadline, self._sync_deadline, *self.roster.pending.values()):
            deadline.due_ms = None
        for member in self.roster.members.values():
            member.session.due_ms = None
        self.roster.clear()

    def _arm(self, deadline: Deadline, after_ms: int, moment: Moment) -> None:
        self.services.deadlines.arm(deadline, moment.monotonic_ms + after_ms)

    def _become(self, state: GroupState, moment: Moment, reason: str) -> None:
        assert state in LEGAL_NEXT[self.state], (self.state, state, self.owner.history.as_fact())
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = moment.wall_ms
        self.owner.history.add(moment.wall_ms, state.value, generation=self.generation, reason=reason)

    def _become_dead(self) -> None:
        self.previous_state = self.state
        self.state = GroupState.DEAD


def next_generation(generation: int) -> int:
    """The next generation; after the greatest int32 it starts again at 1."""
    return generation + 1 if 0 <= generation < INT32_MAX else 1
